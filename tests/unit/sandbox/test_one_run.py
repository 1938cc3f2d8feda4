"""A sandbox for one run: fewer transactions in the audit log, and no record later than what it is a record of."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

import anyio
import anyio.to_thread
import pytest

import fumehood
from fumehood import AuditError, DeniedError, Policy, RunResult, UsageError
from fumehood.audit import AuditLog, Query
from fumehood.audit.inspection import check
from fumehood.audit.records import Entry
from fumehood.sandbox.async_sandbox import OneRunSandbox, run_once
from fumehood.sandbox.request import RunOptions

# Until its input ends.
WAIT = "import sys\nopen('/shared/begun', 'w').close()\nsys.stdin.read()"


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    return AuditLog.at(tmp_path / "log")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    os.mkfifo(folder / "begun")
    return folder


@pytest.fixture
def stdin() -> Iterator[tuple[int, BinaryIO]]:
    """The input of a program, which ends when the other end is closed."""
    read, write = os.pipe()
    with open(read, "rb"), open(write, "wb") as ours:
        yield read, ours


async def wait_begun(shared: Path) -> None:
    await anyio.to_thread.run_sync((shared / "begun").read_bytes)


def sharing(folder: Path, **sections: object) -> Policy:
    return Policy(filesystem={"mounts": [{"source": str(folder), "target": "/shared", "mode": "rw"}]}, **sections)


def kinds(log: AuditLog) -> list[str]:
    return [record.kind for record in log.find(Query()) if not record.kind.startswith("log.")]


async def run(log: AuditLog, code: str, policy: Policy | None = None, **options: object) -> RunResult:
    return await run_once(OneRunSandbox(policy, audit=log), code, RunOptions(**options))  # type: ignore[typeddict-item]


@pytest.mark.anyio
async def test_it_is_recorded_in_two_transactions(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    transactions: list[list[str]] = []
    append = log.append

    def watched(entries: Sequence[Entry]) -> None:
        transactions.append([entry.kind for entry in entries])
        assert [entry.time for entry in entries] == sorted(entry.time for entry in entries)
        append(entries)

    monkeypatch.setattr(log, "append", watched)
    assert (await run(log, "print(1)")).stdout == "1\n"
    written = [kind for kinds in transactions for kind in kinds]
    assert written == ["sandbox.opened", "run.requested", "run.started", "run.finished", "sandbox.closed"]
    assert transactions[0] == ["sandbox.opened", "run.requested"]
    assert transactions[-1][-2:] == ["run.finished", "sandbox.closed"]
    assert check(log.folder, None).ok


@pytest.mark.anyio
async def test_its_request_is_on_record_while_it_runs_and_its_closing_is_not(
    log: AuditLog, shared: Path, stdin: tuple[int, BinaryIO]
) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(partial(run, log, WAIT, sharing(shared), stdin=stdin[0]))
        await wait_begun(shared)
        assert kinds(log)[:2] == ["sandbox.opened", "run.requested"]
        assert "sandbox.closed" not in kinds(log)
        stdin[1].close()
    assert kinds(log) == ["sandbox.opened", "run.requested", "run.started", "run.finished", "sandbox.closed"]


@pytest.mark.anyio
async def test_when_its_opening_cannot_be_recorded_nothing_runs(log: AuditLog, shared: Path, tmp_path: Path) -> None:
    shutil.move(log.folder, tmp_path / "aside")
    with pytest.raises(AuditError):
        await run(log, "open('/shared/ran', 'w')", sharing(shared))
    shutil.move(tmp_path / "aside", log.folder)
    assert not (shared / "ran").exists()
    assert kinds(log) == []


@pytest.mark.anyio
async def test_when_its_end_cannot_be_recorded_the_result_is_withheld(
    log: AuditLog, shared: Path, stdin: tuple[int, BinaryIO], tmp_path: Path
) -> None:
    caught: list[AuditError] = []

    async def withheld() -> None:
        with pytest.raises(AuditError) as error:
            await run(log, WAIT, sharing(shared), stdin=stdin[0])
        caught.append(error.value)

    async with anyio.create_task_group() as group:
        group.start_soon(withheld)
        await wait_begun(shared)
        shutil.move(log.folder, tmp_path / "aside")
        stdin[1].close()
    assert "removed or replaced" in str(caught[0])
    shutil.move(tmp_path / "aside", log.folder)
    assert kinds(log)[:2] == ["sandbox.opened", "run.requested"]
    assert not {"run.finished", "sandbox.closed"} & set(kinds(log))


@pytest.mark.anyio
async def test_when_there_is_no_room_for_its_end_there_is_for_its_failure(
    log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = log.append

    def full(entries: Sequence[Entry]) -> None:
        if any(entry.kind == "run.finished" for entry in entries):
            raise AuditError("the disk is full")
        append(entries)

    monkeypatch.setattr(log, "append", full)
    with pytest.raises(AuditError, match="the disk is full"):
        await run(log, "print(1)")
    assert kinds(log)[-2:] == ["run.broke", "sandbox.closed"]


@pytest.mark.anyio
@pytest.mark.parametrize("options", [{"timeout": "1h"}, {"timeout": 0.5, "cwd": "\0"}], ids=["denied", "wrong"])
async def test_what_does_not_start_is_recorded_as_before(log: AuditLog, options: dict[str, object]) -> None:
    with pytest.raises((DeniedError, UsageError)):
        await run(log, "print(1)", **options)
    denied = ["request.denied"] if options["timeout"] == "1h" else []
    assert kinds(log) == ["sandbox.opened", *denied, "sandbox.closed"]


@pytest.mark.anyio
async def test_a_command_that_is_denied_is_recorded_as_before(log: AuditLog) -> None:
    policy = Policy(commands={"allow": ["ls"]})
    result = await run_once(OneRunSandbox(policy, audit=log), None, {"argv": ["cat", "/etc/passwd"]})
    assert result.denials
    assert kinds(log) == ["sandbox.opened", "request.denied", "sandbox.closed"]


@pytest.mark.anyio
async def test_artifacts_are_recorded_before_the_closing(log: AuditLog) -> None:
    result = await run(log, "open('a.txt', 'w').write('x')", Policy(filesystem={"outputs": ["*.txt"]}))
    assert [each.path for each in result.artifacts] == ["a.txt"]
    assert kinds(log)[-3:] == ["run.finished", "artifacts.found", "sandbox.closed"]


@pytest.mark.anyio
async def test_cancelling_it_is_recorded_and_closes_it(
    log: AuditLog, shared: Path, stdin: tuple[int, BinaryIO]
) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(partial(run, log, WAIT, sharing(shared), stdin=stdin[0]))
        await wait_begun(shared)
        group.cancel_scope.cancel()
    assert kinds(log)[-2:] == ["run.finished", "sandbox.closed"]


def test_a_host_that_is_killed_leaves_the_opening_and_the_request(tmp_path: Path, shared: Path) -> None:
    program = "import fumehood, sys\nfumehood.run(sys.argv[1], sys.argv[2], stdin=0)"
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"filesystem: {{mounts: [{{source: {shared}, target: /shared, mode: rw}}]}}\n")
    environment = {**os.environ, "FUMEHOOD_AUDIT": str(tmp_path / "log")}
    command = [sys.executable, "-c", program, WAIT, policy]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as host:
        (shared / "begun").read_bytes()
        host.kill()
    log = AuditLog.at(tmp_path / "log")
    assert kinds(log)[:2] == ["sandbox.opened", "run.requested"]
    assert not {"run.finished", "sandbox.closed"} & set(kinds(log))
    assert check(log.folder, None).ok


def test_the_blocking_function_is_such_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUMEHOOD_AUDIT", str(tmp_path / "log"))
    assert fumehood.run("print(6 * 7)").stdout == "42\n"
    log = AuditLog.at(tmp_path / "log")
    assert kinds(log) == ["sandbox.opened", "run.requested", "run.started", "run.finished", "sandbox.closed"]
