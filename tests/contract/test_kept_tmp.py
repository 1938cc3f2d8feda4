"""A sandbox that keeps /tmp: runs and file methods share it as they share the workspace. Others do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fumehood import Cause, DeniedError, Policy, Sandbox, UsageError

MakePolicy = Callable[..., Policy]


@pytest.fixture
def box(make_policy: MakePolicy) -> Iterator[Sandbox]:
    policy = make_policy(filesystem={"outputs": ["/tmp/out/**"]}, resources={"disk": "1M"})
    with Sandbox(policy, keep_tmp=True) as opened:
        yield opened


def test_what_one_run_leaves_in_tmp_the_next_finds(box: Sandbox) -> None:
    assert box.run("for folder in ('/tmp', '/var/tmp'): open(f'{folder}/x', 'w').write('kept')").ok
    assert box.run(argv=["cat", "/var/tmp/x"]).stdout == "kept"
    assert box.run(argv=["cat", "/tmp/x"]).stdout == "kept"
    assert box.run(argv=["sh", "-c", "echo 'echo ran' > tool; chmod +x tool; ./tool"], cwd="/tmp").stdout == "ran\n"
    with box.session() as session:
        assert session.run("print(open('/tmp/x').read())").stdout == "kept\n"
    assert box.run("import os; print(os.listdir('/dev/shm'), os.listdir('/workspace'))").stdout == "[] []\n"


def test_files_go_to_tmp_and_come_from_there(box: Sandbox, tmp_path: Path) -> None:
    box.files.write("/tmp/out/a", b"1")
    box.files.mkdir("/tmp/folder")
    assert box.run("open('/tmp/out/b', 'w').write(open('/tmp/out/a').read() + '2')").ok
    assert box.files.read("/tmp/out/b") == b"12"
    assert [entry.name for entry in box.files.list("/tmp")] == ["folder", "out"]
    assert box.files.stat("/tmp/out/b").size == 2
    (tmp_path / "here").write_text("up")
    box.files.upload(tmp_path / "here", "/tmp/")
    assert box.run(argv=["cat", "/tmp/here"]).stdout == "up"
    assert box.files.download("/tmp/out", tmp_path / "copy").files == 2
    box.files.remove("/tmp/out", recursive=True)
    with pytest.raises(UsageError, match="always exists"):
        box.files.remove("/tmp", recursive=True)


@pytest.mark.one_container
def test_only_what_outputs_name_leaves_tmp(make_policy: MakePolicy, box: Sandbox) -> None:
    box.files.write("/tmp/x", b"")
    with pytest.raises(DeniedError, match=r"filesystem\.outputs"):
        box.files.read("/tmp/x")
    with Sandbox(make_policy(filesystem={"outputs": ["**"]}), keep_tmp=True) as other:
        other.files.write("/tmp/x", b"")
        with pytest.raises(DeniedError, match=r"filesystem\.outputs"):
            other.files.read("/tmp/x")


def test_a_kept_tmp_is_no_larger_than_the_policy_says(box: Sandbox) -> None:
    box.files.write("/tmp/x", bytes(700_000))
    with pytest.raises(DeniedError, match="no room"):
        box.files.write("/tmp/y", bytes(700_000))
    result = box.run("open('/tmp/y', 'wb').write(bytes(700_000))")
    assert result.cause is Cause.DISK


def test_without_it_each_run_has_its_own(make_policy: MakePolicy) -> None:
    with Sandbox(make_policy(filesystem={"outputs": ["/tmp/**"]})) as fresh:
        assert fresh.run("open('/tmp/x', 'w')").ok
        assert fresh.run("import os; print(os.listdir('/tmp'))").stdout == "[]\n"
        with pytest.raises(UsageError, match="made anew"):
            fresh.files.read("/tmp/x")
