"""SQLite: one file, one server process. Statements run in one thread, so that the event loop never waits for a disk."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from fumehood.server.storage import schema
from fumehood.server.storage.database import EVERYTHING, Row, StorageError, Transaction, Value, checked
from fumehood.server.storage.sqlite_batch import WaitingWork, Work, commit_together, named_error

T = TypeVar("T")
_MOST_TOGETHER = 128


class SqliteDatabase:
    """Holds a lock as long as it is open: a second server with the same file would count quotas by itself."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _locked(path)
        self._thread = ThreadPoolExecutor(1, "fumehood-storage")
        self._turn = asyncio.Lock()
        self._waiting: list[WaitingWork] = []
        self._commits: asyncio.Task[None] | None = None
        self._connection = self._thread.submit(_connect, path).result()

    async def prepare(self) -> None:
        async with self.transaction(EVERYTHING) as transaction:
            await transaction.execute(schema.FACTS)
            if found := await transaction.row(schema.READ_VERSION):
                schema.check_version(str(found["value"]))
                return
            for statement in schema.statements():
                await transaction.execute(statement)

    @asynccontextmanager
    async def transaction(self, tenant: str) -> AsyncIterator[_SqliteTransaction]:
        async with self._turn:
            try:
                await self._do(partial(self._connection.execute, "BEGIN IMMEDIATE"))
                yield _SqliteTransaction(self)
                await self._do(partial(self._connection.execute, "COMMIT"))
            except BaseException:
                await self._do(self._roll_back)
                raise

    async def transact(self, tenant: str, work: Callable[[Transaction], Awaitable[T]]) -> T:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(WaitingWork(work, done))
        if self._commits is None:
            self._commits = asyncio.ensure_future(self._commit_waiting())
        return await run_to_end(done)

    async def _commit_waiting(self) -> None:
        """What comes while one commit is under way waits for the next one, which is for all of it."""
        try:
            while self._waiting:
                async with self._turn:
                    together = self._waiting[:_MOST_TOGETHER]
                    del self._waiting[:_MOST_TOGETHER]
                    outcomes = await self._outcomes([each.work for each in together])
                for each, outcome in zip(together, outcomes, strict=True):
                    each.settle(outcome)
        finally:
            self._commits = None

    async def _outcomes(self, works: list[Work]) -> Sequence[object]:
        try:
            return await self._do(partial(commit_together, self._connection, works))
        except (StorageError, RuntimeError) as error:  # the thread has ended with the server
            return [StorageError(f"the database failed: {error}")] * len(works)

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    async def close(self) -> None:
        await self._do(self._connection.close)
        self._thread.shutdown()
        os.close(self._lock)

    async def run(self, statement: str, values: Sequence[Value]) -> tuple[list[Row], int]:
        return await self._do(partial(self._run, statement, checked(values)))

    def _run(self, statement: str, values: Sequence[Value]) -> tuple[list[Row], int]:
        cursor = self._connection.execute(statement, values)
        return [dict(row) for row in cursor.fetchall()], cursor.rowcount

    async def _do(self, work: Callable[[], T]) -> T:
        """A caller that is cancelled waits for the statement under way: it cannot be taken back, and has the turn."""
        try:
            return await run_to_end(asyncio.get_running_loop().run_in_executor(self._thread, work))
        except sqlite3.Error as error:
            raise named_error(error) from error


async def run_to_end(future: asyncio.Future[T]) -> T:
    """The result of the future. A cancellation meanwhile is raised when the future is done."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        raise


class _SqliteTransaction:
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def execute(self, statement: str, *values: Value) -> int:
        return (await self._database.run(statement, values))[1]

    async def rows(self, statement: str, *values: Value) -> Sequence[Row]:
        return (await self._database.run(statement, values))[0]

    async def row(self, statement: str, *values: Value) -> Row | None:
        found = await self.rows(statement, *values)
        return found[0] if found else None


def _locked(path: Path) -> int:
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise StorageError(f"another server uses {path}; several servers need PostgreSQL") from None
    return lock


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    os.chmod(path, 0o600)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "busy_timeout = 5000"):
        connection.execute(f"PRAGMA {pragma}")
    return connection
