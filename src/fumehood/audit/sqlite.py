"""Records in one SQLite file in WAL mode. Any number of processes may write: SQLite lets one after the other.

A commit hands its pages to the operating system, so that it survives the death of every process. `sync` puts them on
the disk. SQLite could do that too (synchronous=FULL), but while it holds the lock that everybody waits for.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import cast

from fumehood.audit.disk_sync import DiskSync
from fumehood.audit.records import EMPTY, Head, Record
from fumehood.audit.schema import FORMAT, deviations, make_tables
from fumehood.audit.store import Attached, BusyError, Query
from fumehood.errors import AuditError

_MOVE_HEAD = (
    "UPDATE head SET seq = ?, hash = ?, checkpoint_seq = ?, checkpoint_time = ? WHERE one = 1 AND seq = ? AND hash = ?"
)
_INSERT = "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)"
_ATTACH = "INSERT INTO attachments VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET last_seq = excluded.last_seq"
_COLUMNS = "seq, hash, time, kind, run_id, sandbox_id, body"
# What lies behind the end of the log is not of the log.
_IN_CHAIN = "seq <= (SELECT seq FROM head WHERE one = 1)"
_OPENING_SECONDS = 30.0
_MOST_READERS = 4
"""That are kept open between questions."""
# Not LIKE, which can take a thousand times longer for a text that a record is full of, but for its end.
_HOLDS = "instr(lower(body), lower(?))"
# What is refused before there is a run has a kind of its own instead of a status.
_STATUS = {"denied": f"({_HOLDS} OR kind LIKE '%.denied' OR kind LIKE '%.refused')"}


class SqliteStore:
    """One connection to write for the life of the process, and those to read that are needed at once.

    Each is used by one thread at a time. SQLite would take turns, but threads that wait for theirs hold Python's lock:
    a search that goes through a long log would stop the whole process.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._writing = Failing(path, "written")
        self._readers: list[sqlite3.Connection] | None = []
        """Those that wait for the next question; None once the store is closed."""
        # Where the log ended when we looked last. Others may have written since: whether it still does is asked below.
        self._known_head = EMPTY
        with Failing(path, "opened"):
            self._connection = _connect_to_read(path) if read_only else connect(path, read_only=False)
        self._location = os.fspath(path)
        self._identity = _identity(self._location)
        # Never the database itself: closing any descriptor of it would give up SQLite's locks.
        self._wal = None if read_only else os.open(f"{path}-wal", os.O_RDONLY | os.O_CLOEXEC)
        self._disk = None if self._wal is None else DiskSync(self._wal)

    def extend(
        self,
        follow: Callable[[Head], Sequence[Record]],
        attachments: Mapping[str, Attached],
        *,
        is_checkpoint: bool = False,
    ) -> Sequence[Record]:
        with self._lock, self._writing:
            self.refuse_if_replaced()
            # Made before the lock is taken, and once more only when another process has written in the meantime.
            head = self._known_head
            records = follow(head)
            execute = self._connection.execute
            execute("BEGIN IMMEDIATE")
            try:
                new = _conclude(head, records[-1], is_checkpoint=is_checkpoint)
                if not execute(_MOVE_HEAD, (*new, head.seq, head.hash)).rowcount:
                    head = self._read_head()
                    records = follow(head)
                    new = _conclude(head, records[-1], is_checkpoint=is_checkpoint)
                    execute("INSERT OR REPLACE INTO head VALUES (1, ?, ?, ?, ?)", new)
                self._connection.executemany(_INSERT, records)
                for digest, (data, place) in attachments.items():
                    execute(_ATTACH, (digest, data, records[place].seq))
                execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
            self._known_head = new
        return records

    def sync(self) -> None:
        if self._disk is None:
            return
        try:
            self._disk.wait()
        except OSError as error:
            raise _failure(self.path, "written", f"the disk has failed ({error.strerror or error})") from error

    def settle(self) -> None:
        """Move the pages from the WAL to the database, so that the WAL can begin anew; syncs both."""
        self.sync()
        # When others hold the file, the next checkpoint does it.
        with suppress(BusyError), self._writing, closing(connect(self.path, read_only=False)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def head(self) -> Head:
        with self._lock, Failing(self.path, "read"):
            return self._read_head()

    def find(self, query: Query) -> Iterator[Record]:
        where, values = _conditions(query)
        order = "DESC" if query.newest_first else "ASC"
        text = f"SELECT {_COLUMNS} FROM records WHERE {where} ORDER BY seq {order} LIMIT ?"
        for row in self._rows(text, (*values, -1 if query.limit is None else query.limit)):
            yield read_record_row(row)

    def attachment(self, sha256: str) -> bytes | None:
        for row in self._rows("SELECT data FROM attachments WHERE sha256 = ?", (sha256,)):
            return row[0] if isinstance(row[0], bytes) else None
        return None

    def attachments(self) -> Iterator[tuple[str, bytes]]:
        for row in self._rows("SELECT sha256, data FROM attachments", ()):
            digest, data = row
            yield str(digest), data if isinstance(data, bytes) else b""

    def drop_before(self, seq: int) -> int:
        with self._lock, Failing(self.path, "pruned"):
            execute = self._connection.execute
            execute("BEGIN IMMEDIATE")
            try:
                dropped = execute("DELETE FROM records WHERE seq < ?", (seq,)).rowcount
                execute("DELETE FROM attachments WHERE last_seq < ?", (seq,))
                execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
        return dropped

    def close(self) -> None:
        waiting, self._readers = self._readers or [], None
        for connection in (*waiting, self._connection):
            connection.close()
        if self._wal is not None:
            os.close(self._wal)
            self._wal = self._disk = None

    def _rows(self, text: str, values: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
        """A thousand at a time, and through a connection of its own: what is not committed yet is not seen."""
        with Failing(self.path, "read"), self._reader() as reader, closing(reader.execute(text, values)) as cursor:
            while rows := cursor.fetchmany(1000):
                yield from rows

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = (self._readers or []).pop()
        except IndexError:
            connection = _connect_to_read(self.path)
        try:
            yield connection
        finally:
            if self._readers is None or len(self._readers) >= _MOST_READERS:
                connection.close()
            else:
                self._readers.append(connection)

    def _read_head(self) -> Head:
        head = read_head(self._connection)
        if head is None:
            raise sqlite3.IntegrityError("its note of the log's end is not valid")
        return head

    def _roll_back(self) -> None:
        # Some failures have rolled back already.
        with suppress(sqlite3.Error):
            self._connection.execute("ROLLBACK")

    def is_replaced(self) -> bool:
        return _identity(self._location) != self._identity

    def refuse_if_replaced(self) -> None:
        """A log that was moved away would take every record, and no reader would find it; nor has it new ones."""
        if self.is_replaced():
            raise AuditError(f"the audit log {self.path} was removed or replaced while it was in use; start again")


class Failing:
    """SQLite's errors become ours, here and nowhere else."""

    __slots__ = ("_path", "_what")

    def __init__(self, path: Path, what: str) -> None:
        self._path, self._what = path, what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        # The latter when SQLite quotes in an error what is not text.
        if not isinstance(error, sqlite3.Error | UnicodeDecodeError):
            return
        if isinstance(error, sqlite3.IntegrityError):
            # We keep all constraints; only rows that another program wrote can be in the way.
            raise changed_by_others(self._path, str(error)) from error
        code = getattr(error, "sqlite_errorcode", None)
        if code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) and self._what != "opened":
            raise BusyError from error
        raise _failure(self._path, self._what, str(error)) from error


def connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    if not read_only:
        _keep_private(path)
    connection = sqlite3.connect(
        f"file:{_quoted(path)}?{_how(path) if read_only else 'mode=rwc'}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=_OPENING_SECONDS,
    )
    try:
        if read_only:
            # Functions that a schema calls are not called.
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.text_factory = _text
        else:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.execute("PRAGMA synchronous = NORMAL")
            # `settle` does it, without blocking writers.
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            make_tables(connection)
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if found != FORMAT:
            raise sqlite3.DatabaseError(f"its format is {found}, and this version of Fumehood knows {FORMAT}")
        if not read_only and (strange := list(deviations(connection))):
            raise changed_by_others(path, "; ".join(strange))
        # From now on SQLite does not wait for locks: an event loop may be waiting for us.
        connection.execute(f"PRAGMA busy_timeout = {int(_OPENING_SECONDS * 1000) if read_only else 0}")
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """A read-only connection; raises AuditError if the schema was changed, since that decides what is read."""
    connection = connect(path, read_only=True)
    try:
        if strange := list(deviations(connection)):
            raise AuditError(
                f"the audit log {path} was changed by another program, and is not read: {'; '.join(strange)}. "
                "`hood audit verify` says more."
            )
    except BaseException:
        connection.close()
        raise
    return connection


def _how(path: Path) -> str:
    """The URI options to read it. Where its folder cannot be written to, it is a copy that does not change."""
    is_copy = not os.access(path.parent, os.W_OK) and not os.path.exists(f"{path}-wal")
    return "mode=ro&immutable=1" if is_copy else "mode=ro"


def _text(data: bytes) -> str:
    """What is not UTF-8 stays recognisable: two files that differ are not read as the same."""
    return data.decode("utf-8", "surrogateescape")


def read_head(connection: sqlite3.Connection) -> Head | None:
    """None when the file holds something else in its place."""
    row: object = connection.execute(
        "SELECT seq, hash, checkpoint_seq, checkpoint_time FROM head WHERE one = 1"
    ).fetchone()
    match row:
        case None:
            return EMPTY
        case (int(seq), bytes(digest), int(checkpoint), str(moment)):
            return Head(seq, digest, checkpoint, moment)
        case _:
            return None


def read_record_row(row: tuple[object, ...]) -> Record:
    """SQLite takes any value in any column, so an edited file may hold anything."""
    match row:
        case (int(seq), bytes(digest), str(time), str(kind), str() | None as run, str() | None as sandbox, str(body)):
            return Record(seq, digest, time, kind, run, sandbox, body)
        case _:
            return Record(cast("int", row[0]), b"", "", "", None, None, "")


def _conclude(head: Head, last: Record, *, is_checkpoint: bool) -> Head:
    """The head after a record that was written behind this one."""
    mark = (last.seq, last.time) if is_checkpoint else (head.checkpoint_seq, head.checkpoint_time)
    return Head(last.seq, last.hash, *mark)


def _conditions(query: Query) -> tuple[str, tuple[object, ...]]:
    wanted: list[tuple[str, object]] = [
        ("seq > ?", query.after),
        ("time >= ?", query.since),
        ("time < ?", query.until),
        ("run_id = ?", query.run_id),
        ("sandbox_id = ?", query.sandbox_id),
        # A dot is the character before "/", so these are all kinds that begin with the word and a dot.
        ("(kind || '.') >= ?", None if query.kind is None else f"{query.kind}."),
        ("(kind || '.') < ?", None if query.kind is None else f"{query.kind}/"),
        # As it stands in a record, which is canonical JSON.
        (_HOLDS, None if query.text is None else json.dumps(query.text)[1:-1]),
    ]
    if query.status is not None:
        status = f'"status":{json.dumps(query.status)}'
        wanted.append((_STATUS.get(query.status, _HOLDS), status))
    parts = [(text, value) for text, value in wanted if value is not None]
    return " AND ".join([_IN_CHAIN, *(text for text, _ in parts)]), tuple(value for _, value in parts)


def _keep_private(path: Path) -> None:
    """Makes the file private to its owner. SQLite gives its other files the same mode.

    What cannot be opened SQLite reports in its own words.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    # One that an earlier version made; by its name, because closing a descriptor would give up SQLite's locks.
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with suppress(OSError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def _quoted(path: Path) -> str:
    from urllib.parse import quote

    return quote(str(path))


def _identity(path: str) -> tuple[int, int] | None:
    try:
        details = os.stat(path)
    except OSError:
        return None
    return details.st_dev, details.st_ino


def changed_by_others(path: Path, how: str) -> AuditError:
    return AuditError(
        f"the audit log {path} was changed by another program, and is not written to any more, so nothing runs: {how}. "
        "`hood audit verify` says more. Move the whole folder away, keep it as it is, and a new log is begun."
    )


def _failure(path: Path, what: str, why: str) -> AuditError:
    consequence = ", and without it nothing runs" if what in ("opened", "written") else ""
    remedy = (
        "Make room, or set FUMEHOOD_AUDIT to another folder" if "full" in why else "Look after the folder and its disk"
    )
    return AuditError(f"the audit log {path} cannot be {what}{consequence}: {why}. {remedy}.")
