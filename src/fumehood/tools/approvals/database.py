"""The SQLite file that requests for approval lie in, and how a step is carried out in it: whole, or not at all.

Time does not go backwards here: the latest moment that was ever seen counts as now when the clock says less.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from fumehood.errors import AuditError, StepFailedError, UsageError
from fumehood.host.folders import PrivateFolder, user_folder
from fumehood.tools.approvals.requests import Moment

VARIABLE = "FUMEHOOD_APPROVALS"
FOLDER = PrivateFolder("approvals", VARIABLE, error=AuditError)


def find_folder(variables: Mapping[str, str]) -> Path:
    """$FUMEHOOD_APPROVALS, else the user's state folder. There is no way to turn them off."""
    chosen = variables.get(VARIABLE)
    if not chosen:
        return user_folder("state", variables, VARIABLE) / "approvals"
    if not os.path.isabs(chosen):
        raise UsageError(f"{VARIABLE} {chosen!r} must be an absolute path")
    return Path(chosen)


_FORMAT = 1
_WAIT_SECONDS = 30.0
_CLOCK_SECONDS = 5.0
_SCHEMA = """
CREATE TABLE requests (
    id TEXT PRIMARY KEY, digest TEXT NOT NULL, call TEXT NOT NULL, arguments TEXT NOT NULL,
    policy_digest TEXT NOT NULL, meaning BLOB NOT NULL, policy_name TEXT, state TEXT NOT NULL,
    asked_by TEXT NOT NULL, tenant TEXT, asked_at REAL NOT NULL, expires_at REAL NOT NULL,
    boot TEXT NOT NULL, expires_since_boot REAL NOT NULL, holder TEXT NOT NULL,
    answered_by TEXT, answered_at REAL, reason TEXT, edited TEXT, edited_digest TEXT);
CREATE INDEX requests_by_state ON requests (state);
CREATE TABLE clock (one INTEGER PRIMARY KEY CHECK (one = 1), latest REAL NOT NULL);
INSERT INTO clock VALUES (1, 0)
"""

T = TypeVar("T")
Execute = Callable[..., sqlite3.Cursor]


class ApprovalDatabase:
    """Every step opens the file anew, so that threads, forks and other processes make no difference."""

    def __init__(self, path: Path, now: Callable[[], Moment]) -> None:
        self._path, self._now = path, now
        with _failing(path), suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        with self._connection() as connection:
            _make_tables(connection)

    def transact(self, step: Callable[[Execute, Moment], T]) -> T:
        """What `step` does is kept, unless it raises."""
        with self._connection() as connection, _transaction(connection):
            return step(connection.execute, _advance(connection.execute, self._now()))

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with _failing(self._path):
            connection = sqlite3.connect(self._path, isolation_level=None, timeout=_WAIT_SECONDS)
            with closing(connection):
                connection.row_factory = sqlite3.Row
                # One row that is not text must not keep the others from being read.
                connection.text_factory = _text
                connection.execute("PRAGMA journal_mode = WAL").fetchone()
                # A yes or a no is worth waiting for the disk.
                connection.execute("PRAGMA synchronous = FULL")
                yield connection


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _make_tables(connection: sqlite3.Connection) -> None:
    with _transaction(connection):
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if not found:
            for statement in _SCHEMA.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {_FORMAT}")
        elif found != _FORMAT:
            raise sqlite3.DatabaseError(f"its format is {found}, and this version of Fumehood knows {_FORMAT}")


def _advance(execute: Execute, moment: Moment) -> Moment:
    """The later of what the clock says and what it ever said."""
    latest = execute("SELECT latest FROM clock").fetchone()[0]
    # Not on every look: those who wait look often, and each change is a write to the disk.
    if moment.wall > latest + _CLOCK_SECONDS:
        execute("UPDATE clock SET latest = ?", (moment.wall,))
    return Moment(max(moment.wall, latest), moment.since_boot, moment.boot, is_behind=moment.wall < latest)


@contextmanager
def _failing(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise StepFailedError(
            f"keeping approvals in {path}",
            why or "",
            remedy=f"Look after its disk, or set {VARIABLE} to another folder.",
        ) from error
