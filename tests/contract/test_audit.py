"""What every backend's sandboxes leave in the audit log, and that nothing happens without it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from fumehood import AsyncSandbox, AuditError, DeniedError, Policy, UnenforceableError
from fumehood.audit import AuditLog, Digest, Query, Trail
from fumehood.audit.inspection import check

pytestmark = [pytest.mark.anyio, pytest.mark.one_container]

MakePolicy = Callable[..., Policy]


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    return AuditLog.at(tmp_path / "log")


def told(log: AuditLog, **wanted: Any) -> list[tuple[str, dict[str, Any]]]:
    """Kinds and data, without those of the log itself."""
    records = log.find(Query(**wanted))
    return [(record.kind, record.data) for record in records if not record.kind.startswith("log.")]


def kinds(log: AuditLog, **wanted: Any) -> list[str]:
    return [kind for kind, _ in told(log, **wanted)]


@contextmanager
def taken_away(log: AuditLog, aside: Path) -> Iterator[None]:
    """The log cannot be written."""
    shutil.move(log.folder, aside)
    try:
        yield
    finally:
        shutil.move(aside, log.folder)


async def test_a_run_is_recorded_from_the_wish_to_the_verdict(make_policy: MakePolicy, log: AuditLog) -> None:
    policy = make_policy(name="analyst")
    trail = Trail(log, who="alice", tenant="acme").within(task="task_1")
    async with AsyncSandbox(policy, audit=trail) as box:
        result = await box.run("import sys; print(42); sys.exit(3)", env={"TOKEN": "x"})
    assert kinds(log) == ["sandbox.opened", "run.requested", "run.started", "run.finished", "sandbox.closed"]
    records = list(log.find(Query(run_id=result.run_id)))
    assert [record.kind for record in records] == ["run.requested", "run.started", "run.finished"]
    for record in records:
        fields = record.parse()
        assert (fields["who"], fields["tenant"], fields["ids"]["task"]) == ("alice", "acme", "task_1")
    requested, _, finished = (record.data for record in records)
    code = Digest.of(b"import sys; print(42); sys.exit(3)")
    assert requested["code"] == {"sha256": code.sha256, "size": code.size}
    assert (requested["language"], requested["environment"]) == ("python", ["TOKEN"])
    assert (finished["status"], finished["cause"], finished["exit_code"]) == ("error", "exit", 3)
    assert finished["stdout"]["sha256"] == Digest.of(b"42\n").sha256
    assert check(log.folder, None).ok


async def test_the_opening_tells_the_policy_and_how_it_is_enforced(make_policy: MakePolicy, log: AuditLog) -> None:
    policy = make_policy(name="analyst")
    async with AsyncSandbox(policy, audit=log) as box:
        mechanisms = box.enforcement.keys() - {"place"}  # which is no part of the policy
    ((_, opened),) = told(log, kind="sandbox.opened")
    assert (opened["policy_digest"], opened["policy_name"]) == (policy.digest, "analyst")
    document = log.attachment(opened["policy"]["stored"])
    assert document is not None
    assert f"sha256:{Digest.of(document).sha256}" == policy.digest
    report = log.attachment(opened["enforcement"]["stored"])
    assert report is not None
    assert all(control.encode() in report for control in mechanisms)


async def test_neither_code_nor_output_nor_input_is_in_the_log(make_policy: MakePolicy, log: AuditLog) -> None:
    async with AsyncSandbox(make_policy(), audit=log) as box:
        await box.run("print('canary' + '-out', input())  # canary-code", stdin=b"canary-in", env={"A": "canary-env"})
        await box.run(argv=["echo", "canary-argument"])
    for file in log.folder.iterdir():
        assert b"canary-" not in file.read_bytes()


async def test_by_policy_code_and_output_are_kept(make_policy: MakePolicy, log: AuditLog) -> None:
    async with AsyncSandbox(make_policy(audit={"code": "full", "output": "full"}), audit=log) as box:
        await box.run("print('kept')")
    ((_, requested),) = told(log, kind="run.requested")
    ((_, finished),) = told(log, kind="run.finished")
    assert log.attachment(requested["code"]["stored"]) == b"print('kept')"
    assert log.attachment(finished["stdout"]["stored"]) == b"kept\n"


async def test_by_policy_not_even_digests_are_kept(make_policy: MakePolicy, log: AuditLog) -> None:
    async with AsyncSandbox(make_policy(audit={"code": "none", "output": "none"}), audit=log) as box:
        await box.run("print('kept')")
    assert all("code" not in data and "stdout" not in data for _, data in told(log))


async def test_a_stream_a_session_and_a_background_run_are_recorded(make_policy: MakePolicy, log: AuditLog) -> None:
    async with AsyncSandbox(make_policy(), audit=log) as box:
        async for _ in box.stream("print(1)"):
            pass
        async with box.session() as session:
            await session.run("print(2)")
        run = await box.start("print(input())")
        await run.write("3\n")
        await run.wait()
    finished = [data["stdout"]["sha256"] for _, data in told(log, kind="run.finished")]
    assert finished == [Digest.of(text).sha256 for text in (b"1\n", b"2\n", b"3\n")]
    assert told(log, kind="run.finished")[-1][1]["stdin"]["sha256"] == Digest.of(b"3\n").sha256
    assert kinds(log, kind="session") == ["session.opened", "session.closed"]
    requested = [record.parse()["ids"] for record in log.find(Query(kind="run.requested"))]
    assert ["session" in ids for ids in requested] == [False, True, False]


async def test_what_is_cancelled_left_or_closed_has_an_end_too(make_policy: MakePolicy, log: AuditLog) -> None:
    endless = "print('up', flush=True)\nwhile True: pass"
    async with AsyncSandbox(make_policy(), audit=log) as box:
        with anyio.move_on_after(0.2):
            await box.run(endless)
        stream = box.stream(endless)
        await anext(stream)
        await stream.aclose()
        await box.start(endless)
    assert [data["status"] for _, data in told(log, kind="run.finished")] == ["cancelled"] * 3
    assert kinds(log)[-1] == "sandbox.closed"


async def test_files_are_recorded_on_their_way_in_and_out(
    make_policy: MakePolicy, log: AuditLog, tmp_path: Path
) -> None:
    (tmp_path / "tree" / "below").mkdir(parents=True)
    (tmp_path / "tree" / "below" / "a").write_bytes(b"a")
    async with AsyncSandbox(make_policy(filesystem={"outputs": ["**"]}), audit=log) as box:
        await box.files.write("in.txt", b"in")
        await box.files.upload(tmp_path / "tree", "tree")
        result = await box.run("open('made', 'w').write('made')")
        await box.files.read("made")
        await box.files.download("tree", tmp_path / "copy")
    paths = [(kind, data["path"], data.get("target")) for kind, data in told(log, kind="file")]
    assert paths == [
        ("file.in", "in.txt", None),
        ("file.in", "tree/below/a", None),
        ("file.out", "made", None),
        ("file.out", "tree/below/a", str(tmp_path / "copy" / "below" / "a")),
    ]
    ((_, found),) = told(log, run_id=result.run_id, kind="artifacts")
    assert found["artifacts"] == [{"path": "made", "size": 4, "sha256": Digest.of(b"made").sha256}]


async def test_what_the_policy_denies_is_recorded(make_policy: MakePolicy, log: AuditLog) -> None:
    async with AsyncSandbox(make_policy(resources={"timeout": "5s"}), audit=log) as box:
        with pytest.raises(DeniedError):
            await box.run("pass", timeout=60)
        with pytest.raises(DeniedError):
            await box.files.read("x")
    denied = [(data["action"], data["reason"]) for _, data in told(log, kind="request.denied")]
    assert [action for action, _ in denied] == ["run", "read"]
    assert "resources.timeout" in denied[0][1]


async def test_a_sandbox_that_does_not_open_is_recorded(log: AuditLog) -> None:
    policy = Policy(approvals=[{"tool": "shell"}])
    with pytest.raises(UnenforceableError):
        await AsyncSandbox(policy, audit=log).__aenter__()
    ((kind, data),) = told(log)
    assert (kind, data["error"]) == ("sandbox.refused", "UnenforceableError")


async def test_without_a_log_nothing_opens(make_policy: MakePolicy, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AuditError, match="the folder of the audit log, cannot be used"):
        await AsyncSandbox(make_policy(), audit=tmp_path / "file").__aenter__()


async def test_when_the_log_fails_nothing_runs_and_nothing_leaves(
    make_policy: MakePolicy, log: AuditLog, tmp_path: Path
) -> None:
    async with AsyncSandbox(make_policy(filesystem={"outputs": ["**"]}), audit=log) as box:
        await box.files.write("x", b"secret")
        with taken_away(log, tmp_path / "aside"):
            for attempt in (
                lambda: box.run("open('ran', 'w')"),
                lambda: box.start("open('ran', 'w')"),
                lambda: anext(box.stream("open('ran', 'w')")),
                lambda: box.session().run("open('ran', 'w')"),
                lambda: box.files.read("x"),
                lambda: box.files.download("x", tmp_path / "out"),
            ):
                with pytest.raises(AuditError):
                    await attempt()
        assert not (tmp_path / "out").exists()
        assert [entry.name for entry in await box.files.list()] == ["x"]
        assert (await box.run("print(1)")).stdout == "1\n"


async def test_a_result_that_cannot_be_recorded_is_not_handed_over(
    make_policy: MakePolicy, log: AuditLog, tmp_path: Path
) -> None:
    async with AsyncSandbox(make_policy(), audit=log) as box:
        run = await box.start("print(input())")
        await run.write("x\n")
        with taken_away(log, tmp_path / "aside"), pytest.raises(AuditError):
            await run.wait()


async def test_a_run_that_takes_its_time_is_known_to_have_started(make_policy: MakePolicy, log: AuditLog) -> None:
    async with AsyncSandbox(make_policy(), audit=log) as box, anyio.create_task_group() as group:
        group.start_soon(box.run, "import time; time.sleep(60)")
        for _ in range(3000):
            if "run.started" in kinds(log):
                break
            await anyio.sleep(0.01)
        group.cancel_scope.cancel()
        assert kinds(log) == ["sandbox.opened", "run.requested", "run.started"]
    assert kinds(log) == ["sandbox.opened", "run.requested", "run.started", "run.finished", "sandbox.closed"]


async def test_an_application_can_do_without_but_not_against_the_policy(make_policy: MakePolicy) -> None:
    async with AsyncSandbox(make_policy(), audit=False) as box:
        assert (await box.run("print(1)")).stdout == "1\n"
    for section in ({"required": True}, {"code": "full"}, {"durability": "synced"}):
        with pytest.raises(UnenforceableError, match=r"audit: .*turned off"):
            await AsyncSandbox(make_policy(audit=section), audit=False).__aenter__()


async def test_a_policy_can_have_every_record_on_the_disk(make_policy: MakePolicy, log: AuditLog) -> None:
    async with AsyncSandbox(make_policy(audit={"durability": "synced"}), audit=log) as box:
        assert (await box.run("print(1)")).ok
    assert check(log.folder, None).ok
