"""The audit log against what happens to machines: kills, full disks, torn writes, many processes."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
import sampling
from live.traces import wait_until
from requirements import require
from unit.audit.logs import make_log, problems, write

from fumehood.audit import AuditLog, Query
from fumehood.audit.inspection import check

KILLS, WRITERS = sampling.amount(72, whole=300), 3
FRAME_BYTES = 24 + 4096

# Forks a writer for each name that it is given. A writer notes each text once it is written, in a file that survives
# it: what it has noted must never be lost.
WRITER = """
from unit.audit.logs import write

async def main(folder, name, note):
    log = AuditLog.at(folder)
    for n in itertools.count():
        await write(log, f"{name} {n}")
        note(f"{name} {n}")
"""
# Notes each message when its handler begins, and each answer when the sender has it; sixteen senders at once.
MESSENGER = """
from fumehood.runtime import LocalRuntime, handles
from unit.runtime.sample_agents import Greeting, Reply

async def main(folder, name, note):
    @handles
    async def greet(message: Greeting) -> Reply:
        note(f"handled {message.name}")
        return Reply(text=message.name)

    async def ask(number):
        for n in itertools.count():
            answer = await runtime.send(Greeting(name=f"{name} {number} {n}"), to="greeter")
            note(f"answered {answer.text}")

    async with LocalRuntime(audit=folder, keep="full") as runtime, anyio.create_task_group() as senders:
        await runtime.register("greeter", greet, at_once=8)
        for number in range(16):
            senders.start_soon(ask, number)
"""
# Calls a tool whose program notes its own number, through a mount.
CALLER = """
from fumehood import AsyncSandbox
from fumehood.tools import PYTHON, Toolbox

async def main(folder, name, note):
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mount = {"source": os.path.join(folder, "..", "shared"), "target": "/shared", "mode": "rw"}
    async with AsyncSandbox({"filesystem": {"mounts": [mount]}, "audit": {"code": "full"}}, audit=folder) as box:
        toolbox = Toolbox(box, PYTHON)
        for n in itertools.count():
            result = await toolbox.call("python", {"code": f"open('/shared/ran', 'a').write('{name} {n}\\\\n')"})
            note(f"{result.run.run_id} {name} {n}")
"""
NURSERY = """
import itertools, os, signal, sys, anyio
from fumehood.audit import AuditLog
{writer}
def noting(folder):
    notes = os.open(os.path.join(folder, "..", "notes"), os.O_WRONLY | os.O_APPEND)
    return lambda text: os.write(notes, text.encode() + b"\\n")

anyio.run(anyio.sleep, 0)  # imports, once and not in every writer
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        try:
            anyio.run(main, sys.argv[1], line.strip(), noting(sys.argv[1]))
        finally:
            os._exit(1)
    print(child, flush=True)
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@pytest.mark.timeout(300)
def test_processes_that_are_killed_lose_nothing_that_they_acknowledged(tmp_path: Path) -> None:
    """Several write at once; one after the other is killed at a random moment and another takes its place."""
    folder = tmp_path / "log"
    acknowledged = set(kill_many(WRITER, folder, KILLS))
    found = {str(record.data["text"]) for record in AuditLog.at(folder).find(Query(kind="test.told"))}
    assert acknowledged - found == set()
    assert len({text.split()[0] for text in acknowledged}) > KILLS // 3


@pytest.mark.timeout(300)
def test_a_runtime_that_is_killed_has_lost_no_message_that_was_handled_and_no_answer_that_was_returned(
    tmp_path: Path,
) -> None:
    """Their records were collected for one commit with those of others."""
    folder = tmp_path / "log"
    notes = kill_many(MESSENGER, folder, KILLS // 6)
    bodies = dict(AuditLog.at(folder).attachments())
    for action, kind, key in (("handled", "message.sent", "name"), ("answered", "message.handled", "text")):
        noted = {note.removeprefix(f"{action} ") for note in notes if note.startswith(action)}
        found = AuditLog.at(folder).find(Query(kind=kind))
        recorded = {json.loads(bodies[record.data["body"]["stored"]])[key] for record in found}
        assert noted - recorded == set()
        assert len(noted) >= KILLS // 12  # every other writer had begun


@pytest.mark.timeout(300)
def test_a_program_that_has_run_has_a_record_of_the_call_that_led_to_it(tmp_path: Path) -> None:
    """`tool.called` is not written by itself, but with the record of the run: never less, however the host ends."""
    folder, shared = tmp_path / "log", tmp_path / "shared"
    shared.mkdir()
    (shared / "ran").touch()
    returned = {note.split()[0] for note in kill_many(CALLER, folder, KILLS // 12)}
    log = AuditLog.at(folder)
    ran = set((shared / "ran").read_text().splitlines())
    requested = {log.attachment(each.data["code"]["stored"]): each for each in log.find(Query(kind="run.requested"))}
    calls = [each for each in log.find(Query()) if each.kind in ("tool.called", "run.requested")]
    before = {after.seq: call for call, after in pairwise(calls)}
    for text in ran:
        request = requested[f"open('/shared/ran', 'a').write('{text}\\n')".encode()]
        assert before[request.seq].kind == "tool.called"
        assert before[request.seq].parse()["ids"]["sandbox"] == request.parse()["ids"]["sandbox"]
    assert returned <= {record.data.get("run") for record in log.find(Query(kind="tool.returned"))}
    assert len(ran) >= KILLS // 24


def kill_many(writer: str, folder: Path, kills: int) -> list[str]:
    """What the writers noted, one after the other of which was killed. The log verifies all the same."""
    notes, seed = folder.parent / "notes", random.Random(7)
    notes.touch()
    AuditLog.at(folder)
    command = [sys.executable, "-W", "ignore", "-c", NURSERY.replace("{writer}", writer), str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment(), **pipes) as nursery:
        writers: list[int] = []
        for number in range(kills + WRITERS):
            writers.append(born(nursery, number))
            if len(writers) > WRITERS:
                # Every other one in the midst of writing, the rest wherever it is, at its birth too.
                oldest = number - WRITERS
                if oldest % 2:
                    wait_until(lambda name=f"writer-{oldest} ": name in notes.read_text(), 30.0, "it has begun")
                time.sleep(seed.uniform(0, 0.02))
                os.kill(writers.pop(0), signal.SIGKILL)
        for process in writers:
            os.kill(process, signal.SIGKILL)
        assert nursery.stdin is not None
        nursery.stdin.close()
        wait_until(lambda: not any(is_alive(process) for process in writers), 5.0, "the writers are dead")
    assert problems(check(folder, None)) == []
    return notes.read_text().splitlines()


def born(nursery: subprocess.Popen[str], number: int) -> int:
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    nursery.stdin.write(f"writer-{number}\n")
    nursery.stdin.flush()
    return int(nursery.stdout.readline())


def is_alive(process: int) -> bool:
    return os.path.exists(f"/proc/{process}")


@pytest.mark.anyio
async def test_a_torn_write_ends_the_log_earlier_and_breaks_nothing(tmp_path: Path) -> None:
    """What a loss of power leaves: the database as it was, and any beginning of what was on its way to it."""
    log = AuditLog.at(tmp_path / "log")
    texts = [str(n) for n in range(40)]
    await write(log, *texts)
    database, wal = (log.folder / "audit.db").read_bytes(), (log.folder / "audit.db-wal").read_bytes()
    assert len(wal) > 20 * FRAME_BYTES
    frames = range(0, len(wal) + 1, sampling.amount(3, whole=1) * FRAME_BYTES)
    seed = random.Random(11)
    lengths = {
        *frames,
        *(frame + 32 for frame in frames),
        *(seed.randrange(len(wal)) for _ in range(sampling.amount(20, whole=60))),
    }
    seen: set[int] = set()
    for number, length in enumerate(sorted(lengths)):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(log.folder, copy, ignore=shutil.ignore_patterns("audit.db*"))
        (copy / "audit.db").write_bytes(database)
        (copy / "audit.db-wal").write_bytes(wal[:length])
        seen.add(await recovered(copy, texts))
        shutil.rmtree(copy)
    assert len(seen) > 20


@pytest.mark.anyio
async def test_a_write_that_was_garbled_ends_the_log_earlier_and_breaks_nothing(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "log")
    texts = [str(n) for n in range(40)]
    await write(log, *texts)
    database, wal = (log.folder / "audit.db").read_bytes(), (log.folder / "audit.db-wal").read_bytes()
    seed, seen = random.Random(13), set[int]()
    for number in range(40):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(log.folder, copy, ignore=shutil.ignore_patterns("audit.db*"))
        position = seed.randrange(32, len(wal))
        (copy / "audit.db").write_bytes(database)
        # A sector that never arrived.
        (copy / "audit.db-wal").write_bytes(wal[:position] + bytes(512) + wal[position + 512 :])
        seen.add(await recovered(copy, texts))
        shutil.rmtree(copy)


async def recovered(folder: Path, texts: list[str]) -> int:
    """It verifies, has a beginning of what was written, and takes new records. How much is left of it."""
    log = AuditLog.at(folder)
    assert problems(check(folder, None)) == []
    found = [str(record.data["text"]) for record in log.find(Query(kind="test.told"))]
    assert found == texts[: len(found)]
    await write(log, "after the loss")
    assert problems(check(folder, None)) == []
    log.close()
    return len(found)


FULL = """
import os, pathlib, sys, anyio
from fumehood import AuditError, AsyncSandbox
from fumehood.audit import AuditLog, Query
from fumehood.audit.inspection import check

async def main(folder):
    log, ran, filling = AuditLog.at(folder), 0, os.path.join(folder, "..", "filler")
    async with AsyncSandbox(audit=log) as box:
        await box.run("pass")
        with open(filling, "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError:
                pass
        try:
            for _ in range(300):
                await box.run("pass")
                ran += 1
        except AuditError as error:
            print(error)
        os.unlink(filling)
        assert (await box.run("print(1)")).stdout == "1\\n"
    finished = len(list(log.find(Query(kind="run.finished"))))
    print(check(pathlib.Path(folder), None).ok, finished - ran)

anyio.run(main, sys.argv[1])
"""


def on_a_small_disk(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """With `$1` a file system of a megabyte, which an ordinary user can have in a user namespace."""
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    possible = subprocess.run([*unshare, "mount", "-t", "tmpfs", "none", str(folder)], capture_output=True)
    require(possible.returncode == 0, "cannot mount a file system here")
    script = 'mount -t tmpfs -o size=1M,mode=700 none "$1" && ' + command[0]
    words = [*unshare, "sh", "-c", script, "sh", str(folder), sys.executable, *command[1:]]
    return subprocess.run(words, capture_output=True, text=True, env=environment())


def test_a_full_disk_stops_runs_with_a_clear_error(tmp_path: Path) -> None:
    done = on_a_small_disk(tmp_path, 'exec "$2" -W ignore -c "$3" "$1/log"', FULL)
    assert done.returncode == 0, done.stderr
    error, verdict = done.stdout.strip().split("\n")
    assert "cannot be written, and without it nothing runs: database or disk is full. Make room" in error
    assert verdict == "True 2"


LARGE = """
export FUMEHOOD_AUDIT="$1/log"
printf 'version: 1\naudit: {output: full}\n' > "$1/full.yaml"
"$2" -W ignore -m fumehood run $3 --policy "$1/full.yaml" -c 'print("x" * 900_000)'
echo "exit code $?"
"$2" -W ignore -m fumehood audit search --kind run --json
"$2" -W ignore -m fumehood audit verify
"""


@pytest.mark.parametrize(("option", "shown"), [("--json", 0), ("--quiet", 900_000)], ids=["at the end", "as it comes"])
def test_output_comes_after_its_record_unless_it_is_streamed(tmp_path: Path, option: str, shown: int) -> None:
    """There is room on the disk for the wish and not for the end; that is told, and not as the end of the host."""
    done = on_a_small_disk(tmp_path, LARGE, option)
    assert "the audit log" in done.stderr
    assert "disk is full" in done.stderr
    output, _, rest = done.stdout.partition("exit code ")
    assert output.count("x") == shown
    code, *records, verdict = rest.splitlines()
    assert code == "125"
    assert [json.loads(line)["record"]["kind"] for line in records] == ["run.requested", "run.started", "run.broke"]
    assert "disk is full" in json.loads(records[-1])["record"]["data"]["reason"]
    assert "as they were written" in verdict


@pytest.mark.anyio
async def test_a_log_in_a_folder_that_cannot_be_written_is_verified_all_the_same(tmp_path: Path) -> None:
    """An auditor has a copy, and no right to change it."""
    log = await make_log(tmp_path / "log")
    copy = tmp_path / "copy"
    copy.mkdir()
    with sqlite3.connect(log.folder / "audit.db") as source, sqlite3.connect(copy / "audit.db") as target:
        source.backup(target)
    source.close()
    target.close()
    shutil.copy(log.folder / "key.pub", copy)
    for file in copy.iterdir():
        file.chmod(0o400)
    copy.chmod(0o500)
    try:
        before = sorted(os.listdir(copy))
        assert check(copy, None).ok
        if os.geteuid() != 0:
            assert sorted(os.listdir(copy)) == before
    finally:
        copy.chmod(0o700)
