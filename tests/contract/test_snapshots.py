"""Snapshots, forks and named sandboxes: the workspace comes back as it was, and copies do not see each other."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fumehood import DeniedError, Policy, RunFailedError, Sandbox, SandboxBusyError, UsageError

MakePolicy = Callable[..., Policy]
FILL = """
mkdir -p d/empty locked && printf text > d/small && ln -s /etc/passwd out && ln -s d/small in
head -c 3000000 /dev/zero > large && printf x > unreadable && printf y > locked/inside
for n in $(seq 1 150); do printf $n > d/$n; done
chmod 755 d/small; chmod 0 unreadable; chmod 555 locked
touch -d 2020-01-02T03:04:05.123456789Z d/small; touch -d 2019-01-01Z d/empty
"""
LOOK = """
import os
for top, folders, files in sorted(os.walk('.')):
    for name in sorted(folders + files):
        path = os.path.join(top, name)
        found = os.lstat(path)
        link = os.path.islink(path)
        print(path, link and os.readlink(path), oct(found.st_mode), None if link else found.st_mtime_ns,
              found.st_size if name in files else None)
"""


pytestmark = pytest.mark.usefixtures("store")


def fill(box: Sandbox) -> str:
    box.run(argv=["sh", "-c", FILL]).check()
    return box.run(LOOK).stdout


def test_a_sandbox_begins_with_a_snapshot_as_it_was(make_policy: MakePolicy) -> None:
    with Sandbox(make_policy()) as box:
        before = fill(box)
        snapshot = box.snapshot("base")
        assert box.snapshot().new_bytes == 0
        assert before == box.run(LOOK).stdout
    assert (snapshot.files, snapshot.name) == (154, "base")
    with Sandbox(make_policy(), snapshot="base") as box:
        assert box.run(LOOK).stdout == before
        assert box.run(argv=["cat", "d/small", "locked/inside", "d/77"]).stdout == "texty77"


@pytest.mark.one_container
def test_forks_share_what_is_stored_and_see_nothing_of_each_other(make_policy: MakePolicy, store: Path) -> None:
    with Sandbox(make_policy()) as box:
        before = fill(box)
        one, two = box.fork(2)
        stored = _stored_bytes(store)
        with one, two:
            one.run("open('d/small', 'w').write('one'); open('new', 'w')").check()
            assert two.run(LOOK).stdout == box.run(LOOK).stdout == before
            assert one.run(argv=["cat", "d/small"]).stdout == "one"
            assert one.snapshot().new_bytes == len("one")
        assert _stored_bytes(store) == stored + len("one")


def _stored_bytes(store: Path) -> int:
    return sum(path.stat().st_size for path in (store / "blobs").rglob("*") if path.is_file())


@pytest.mark.one_container
def test_a_named_sandbox_keeps_its_files_and_its_policy(make_policy: MakePolicy) -> None:
    policy = make_policy(resources={"processes": 17})
    with Sandbox.open("work", policy, create=True) as box:
        box.run("open('count', 'w').write('1')").check()
    with Sandbox.open("work") as box:
        assert box.policy.digest == policy.digest
        assert box.run("print(open('count').read())").stdout == "1\n"
        box.run("open('count', 'w').write('2')").check()
        box.save()
        box.run("open('count', 'w').write('3')").check()
        with pytest.raises(SandboxBusyError, match=f"process {os.getpid()}"), Sandbox.open("work"):
            pass
    with pytest.raises(RunFailedError), Sandbox.open("work") as box:
        box.run("open('count', 'w').write('4'); exit(1)").check()
    with Sandbox.open("work", policy := make_policy()) as box:
        assert box.run("print(open('count').read())").stdout == "3\n"
    with Sandbox.open("work") as box:
        assert box.policy.digest == policy.digest


@pytest.mark.one_container
def test_a_snapshot_that_does_not_fit_or_a_workspace_in_use_is_refused(make_policy: MakePolicy) -> None:
    with Sandbox(make_policy()) as box:
        box.run("open('large', 'wb').write(bytes(3_000_000))").check()
        box.snapshot("large")
        run = box.start("import time; print('up', flush=True); time.sleep(60)")
        with pytest.raises(UsageError, match="no program is writing"):
            box.snapshot()
        run.kill()
    small = make_policy(filesystem={"workspace": {"size": "1M"}})
    with pytest.raises(DeniedError, match=r"3.*filesystem\.workspace\.size"), Sandbox(small, snapshot="large"):
        pass
    with pytest.raises(UsageError, match="no snapshot 'larger'"), Sandbox(make_policy(), snapshot="larger"):
        pass


# Through a mapping, which leaves no trace in the times of a file.
CHANGE_FOR_EVER = """
import mmap, threading
file = open('counter', 'w+b'); file.write(bytes(4096)); file.flush()
shared = mmap.mmap(file.fileno(), 4096)
def count():
    number = 0
    while True:
        number += 1
        shared[:8] = number.to_bytes(8, 'big')
threading.Thread(target=count, daemon=True).start()
"""


@pytest.mark.one_container
def test_a_file_that_a_session_changes_while_it_is_saved_is_an_error(make_policy: MakePolicy) -> None:
    with Sandbox(make_policy()) as box, box.session() as session:
        session.run(CHANGE_FOR_EVER).check()
        with pytest.raises(UsageError, match="'counter' changed while the workspace was saved"):
            save_often(box)


def save_often(box: Sandbox) -> None:
    """On a busy machine the thread may not run between two readings."""
    for _ in range(100):
        box.snapshot()
