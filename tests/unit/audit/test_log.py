"""A log on a disk: one chain whoever writes, signed in time, and a clear error where nothing can be written."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import threading
import time
from contextlib import suppress
from contextvars import Context
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from unit.audit.logs import Told, editing, make_log, verdict, write

from fumehood.audit import AuditLog, Query, Trail, inspection, store
from fumehood.audit import log as log_module
from fumehood.audit import sqlite as sqlite_module
from fumehood.audit import trail as trail_module
from fumehood.audit.checkpoints import EVERY_RECORDS
from fumehood.audit.checkpoints import read as read_checkpoint
from fumehood.audit.inspection import LogSnapshot, check
from fumehood.audit.retention import prune
from fumehood.errors import AuditError

pytestmark = pytest.mark.anyio


async def test_a_new_log_is_for_its_owner_alone_and_signed_from_the_start(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "deep" / "log")
    assert [record.kind for record in log.find(Query())] == ["log.created", "log.checkpoint"]
    assert log.folder.stat().st_mode & 0o777 == 0o700
    modes = {file.name: file.stat().st_mode & 0o777 for file in log.folder.iterdir()}
    assert {modes[name] for name in ("key.pem", "audit.db", "audit.db-wal", "audit.db-shm")} == {0o600}
    assert set(modes) == {"audit.db", "audit.db-wal", "audit.db-shm", "key.pem", "key.pub", "checkpoint.json"}


async def test_a_log_of_an_earlier_version_is_closed_to_others_when_it_is_opened(tmp_path: Path) -> None:
    AuditLog.at(tmp_path / "log").close()
    database = tmp_path / "log" / "audit.db"
    database.chmod(0o644)
    AuditLog.at(tmp_path / "log")
    assert database.stat().st_mode & 0o777 == 0o600


async def test_checkpoints_come_by_themselves(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "log")
    await write(log, *map(str, range(2 * EVERY_RECORDS)))
    signed = [record.seq for record in log.find(Query(kind="log.checkpoint"))]
    assert len(signed) >= 3
    assert all(after - before <= EVERY_RECORDS + 1 for before, after in pairwise(signed))
    assert verdict(log.folder) == []


async def test_an_old_checkpoint_is_followed_by_a_new_one(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    count = len(list(log.find(Query(kind="log.checkpoint"))))
    with editing(log.folder) as connection:
        connection.execute("UPDATE head SET checkpoint_time = '2020-01-01T00:00:00.000000Z'")
    log_module._logs.clear()
    later = AuditLog.at(log.folder)
    await write(later, "much later")
    assert len(list(later.find(Query(kind="log.checkpoint")))) == count + 1


@pytest.mark.parametrize("hours", [2, -2])
async def test_a_machine_that_slept_or_whose_clock_was_set_signs_the_next_record(
    hours: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time since it was started knows of neither; the records' own does."""
    log = await make_log(tmp_path / "log")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + hours * 3600)
    await write(log, "fifteen", "seventeen")
    assert [record.seq for record in log.find(Query(kind="log.checkpoint"))] == [2, 11, 16]
    assert verdict(log.folder) == []


async def test_threads_and_tasks_write_one_chain(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "log")

    async def many(name: str) -> None:
        async with anyio.create_task_group() as tasks:
            for n in range(5):
                tasks.start_soon(write, log, *(f"{name} {n} {i}" for i in range(10)))

    threads = [threading.Thread(target=anyio.run, args=(many, str(n))) for n in range(4)]
    for thread in threads:
        thread.start()
    await anyio.to_thread.run_sync(lambda: [thread.join() for thread in threads])
    assert len({record.data["text"] for record in log.find(Query(kind="test.told"))}) == 200
    assert verdict(log.folder) == []


async def test_a_forked_child_writes_to_the_same_chain(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    child = os.fork()
    if child == 0:
        try:
            # In a context of its own: ours says that an event loop runs, and the child has none.
            Context().run(anyio.run, write, AuditLog.at(log.folder), "from the child")
        finally:
            os._exit(0)
    await anyio.to_thread.run_sync(os.waitpid, child, 0)
    await write(log, "from the parent")
    assert [record.data["text"] for record in log.find(Query(text="from the"))] == ["from the child", "from the parent"]
    assert verdict(log.folder) == []


async def test_a_clock_that_goes_back_is_noted_and_breaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await make_log(tmp_path / "log")
    monkeypatch.setattr(trail_module.time, "time", lambda: 1_000_000_000.0)
    await write(log, "long ago")
    monkeypatch.undo()
    await write(log, "now")
    report = check(log.folder, None)
    assert report.ok
    (note,) = report.notes
    assert note.startswith("the clock went back before checkpoint 16: ")
    assert note.endswith(" -> 2001-09-09T01:46:40.000000Z")
    told = [record.data.get("text") for record in log.find(Query(after=14))]
    assert told == ["long ago", None, "now", None]


async def test_what_is_told_late_is_no_clock_that_went_back(tmp_path: Path) -> None:
    """A run's start is written with how it ended, and others have written meanwhile."""
    log = await make_log(tmp_path / "log")
    trail = Trail(log, who="alice")
    early = trail.stamp(Told("early"))
    early = early._replace(time="2001-09-09T01:46:40.000000Z")
    log.checkpoint()
    await trail.write(Told("meanwhile"), early)
    log.checkpoint()
    assert check(log.folder, None).notes == ()


async def test_a_log_that_was_taken_away_takes_no_more_records(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    shutil.move(log.folder, tmp_path / "away")
    with pytest.raises(AuditError, match="removed or replaced while it was in use"):
        await write(log, "into nowhere")


async def test_who_waits_too_long_for_the_lock_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await make_log(tmp_path / "log")
    monkeypatch.setattr(store, "_LIMIT_SECONDS", 0.05)
    with editing(log.folder) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(AuditError, match="has been locked for"):
            await write(log, "never")
    await write(log, "fifteen")
    assert verdict(log.folder) == []


async def test_a_checkpoint_that_fails_does_not_keep_the_next_one_from_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await make_log(tmp_path / "log")
    monkeypatch.setattr(log_module, "EVERY_RECORDS", 1)
    with monkeypatch.context() as broken:
        broken.setattr(log, "_store", None)
        with pytest.raises(AttributeError):
            log.checkpoint_if_due()
    log.checkpoint_if_due()
    assert log.head().checkpoint_seq == log.head().seq


async def test_a_checkpoint_is_made_while_another_process_holds_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moving pages from the WAL can wait for the next one; what is signed is signed."""
    log = await make_log(tmp_path / "log")

    def hold(path: Path, *, read_only: bool) -> sqlite3.Connection:
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY
        raise error

    with monkeypatch.context() as held:
        held.setattr(sqlite_module, "connect", hold)
        signed = log.checkpoint()
    assert log.head().checkpoint_seq == signed.seq
    assert read_checkpoint(log.folder / "checkpoint.json") == signed
    assert verdict(log.folder) == []


async def test_verify_does_not_mind_a_log_that_is_pruned_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint beside the log was read before, and belongs to records that are gone by then."""
    log = await make_log(tmp_path / "log")
    first = [True]

    def prune_first(path: Path) -> LogSnapshot:
        if first.pop() if first else False:
            log.checkpoint()
            anyio.from_thread.run(partial(prune, log, Trail(log, who="me"), before="9999-01-01T00:00:00.000000Z"))
        return LogSnapshot(path)

    monkeypatch.setattr(inspection, "LogSnapshot", prune_first)
    report = await anyio.to_thread.run_sync(check, log.folder, None)
    assert (report.problems, report.first) == ((), 15)


# Only asyncio cancels what anyio shields.
@pytest.mark.parametrize("anyio_backend", ["asyncio"], scope="session")
async def test_a_writer_that_is_cancelled_does_not_keep_others_from_signing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await make_log(tmp_path / "log")
    monkeypatch.setattr(log_module, "EVERY_RECORDS", 1)
    writing = asyncio.ensure_future(write(log, "cancelled"))
    await asyncio.sleep(0)
    writing.cancel()
    with suppress(asyncio.CancelledError):
        await writing
    await write(log, "signed")
    assert log.head().checkpoint_seq == log.head().seq


async def test_the_event_loop_goes_on_while_another_process_writes(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    with editing(log.folder) as connection:
        connection.execute("BEGIN IMMEDIATE")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write, log, "waits")
            await anyio.sleep(0.01)
            connection.execute("ROLLBACK")
    assert next(log.find(Query(text="waits")))


async def test_verify_survives_whatever_is_in_the_file(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    values = (
        None,
        5,
        0.5,
        b"\xff\xfe",
        "",
        "{}",
        "[]",
        "5",
        "[" * 5000,
        '{"seq": 5}',
        '{"seq":5,"time":"","kind":"log.checkpoint"}',
    )
    for column in ("body", "hash", "time", "kind", "run_id", "sandbox_id"):
        for value in values:
            with editing(log.folder) as connection:
                connection.execute("PRAGMA ignore_check_constraints = ON")
                before = connection.execute("SELECT * FROM records WHERE seq = 5").fetchone()
                if value is None and column in ("body", "hash", "time", "kind"):
                    continue  # SQLite itself refuses
                connection.execute(f"UPDATE records SET {column} = ? WHERE seq = 5", (value,))
                connection.execute("UPDATE records SET body = CAST(body AS TEXT) WHERE seq = 5")
            assert verdict(log.folder) != [], (column, value)
            with editing(log.folder) as connection:
                connection.execute("REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", before)
    assert verdict(log.folder) == []


def test_a_place_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AuditError, match=r"the folder of the audit log, cannot be used: .*set FUMEHOOD_AUDIT"):
        AuditLog.at(tmp_path / "file")
    with pytest.raises(AuditError, match=r"the folder of the audit log, cannot be used: .*set FUMEHOOD_AUDIT"):
        AuditLog.at(tmp_path / "file" / "below")


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(AuditError, match=r"open to others; run `chmod 700"):
        AuditLog.at(tmp_path / "open")


def test_a_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir(mode=0o700)
    (folder / "audit.db").write_bytes(b"not a database at all, and long enough to be read as one" * 100)
    with pytest.raises(AuditError, match=r"cannot be opened.*not a database"):
        AuditLog.at(folder)


def test_a_log_of_a_later_version_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir(mode=0o700)
    with sqlite3.connect(folder / "audit.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(AuditError, match="its format is 99"):
        AuditLog.at(folder)


@pytest.mark.parametrize("harm", ["remove", "show", "spoil", "exchange"])
async def test_a_key_that_cannot_be_trusted_signs_nothing(tmp_path: Path, harm: str) -> None:
    log = await make_log(tmp_path / "log")
    key = log.folder / "key.pem"
    harms: dict[str, Any] = {
        "remove": key.unlink,
        "show": lambda: key.chmod(0o644),
        "spoil": lambda: key.write_text("nothing"),
        "exchange": lambda: shutil.copy(AuditLog.at(tmp_path / "other").folder / "key.pem", key),
    }
    harms[harm]()
    log_module._logs.clear()
    with pytest.raises(AuditError, match=r"key\.pem (cannot be used|is another key)"):
        AuditLog.at(log.folder).checkpoint()


async def test_synced_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await make_log(tmp_path / "log")
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    await Trail(log, who="me").write(Told("written"))
    assert synced == []
    await Trail(log, who="me", synced=True).write(Told("synced"))
    assert len(synced) == 1
    assert os.readlink(f"/proc/self/fd/{synced[0]}").endswith("audit.db-wal")


async def test_each_question_that_is_being_answered_has_a_connection_of_its_own(tmp_path: Path) -> None:
    """Threads that shared one would wait for each other with Python's lock in their hands, and everything with them."""
    log = await make_log(tmp_path / "log")
    await write(log, "one", "two")
    path = os.fspath(log.path)

    def opened() -> int:
        with os.scandir("/proc/self/fd") as found:
            return sum(os.readlink(each.path) == path for each in found if os.path.lexists(each.path))

    before, known = opened(), len(list(log.find(Query())))
    questions = [log.find(Query()) for _ in range(4)]
    for question in questions:
        next(question)
    assert opened() >= before + 3
    for question in questions:
        question.close()  # type: ignore[attr-defined]
    most = opened()
    assert [len(list(log.find(Query()))) for _ in range(20)] == [known] * 20
    assert opened() == most  # those that are open are used again
