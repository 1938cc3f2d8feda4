"""Group commit for SQLite: the work of several callers in one transaction, each in a savepoint of its own.

A commit waits for the disk, and a statement that is handed to another thread waits for the interpreter. Callers that
wait at the same time share both.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, cast

from fumehood.frozen import frozen
from fumehood.server.storage.database import DuplicateError, Row, StorageError, Transaction, Value, checked

Work = Callable[[Transaction], Awaitable[Any]]
_SAVEPOINT, _ROLLBACK, _RELEASE = "SAVEPOINT one", "ROLLBACK TO one", "RELEASE one"


@frozen
class WaitingWork:
    """`done` gets what the work returns or raises, when that is committed."""

    work: Work
    done: asyncio.Future[Any]

    def settle(self, outcome: object) -> None:
        if self.done.done():
            return
        if isinstance(outcome, BaseException):
            self.done.set_exception(outcome)
        else:
            self.done.set_result(outcome)


class StatementsHere:
    """Statements that are run by the thread that awaits them: none of them ever suspends."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def execute(self, statement: str, *values: Value) -> int:
        return self._connection.execute(statement, checked(values)).rowcount

    async def rows(self, statement: str, *values: Value) -> Sequence[Row]:
        return [dict(row) for row in self._connection.execute(statement, checked(values)).fetchall()]

    async def row(self, statement: str, *values: Value) -> Row | None:
        found = self._connection.execute(statement, checked(values)).fetchone()
        return None if found is None else dict(found)


def commit_together(connection: sqlite3.Connection, works: Sequence[Work]) -> list[object]:
    """What each work has returned or raised. What one raises takes back that one alone. Blocks.

    If they cannot be committed, none of them has happened, and each outcome is that error.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
        outcomes = [_do(connection, work) for work in works]
        connection.execute("COMMIT")
        return outcomes
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        failure = named_error(error)
        return [failure] * len(works)


def _do(connection: sqlite3.Connection, work: Work) -> object:
    connection.execute(_SAVEPOINT)
    try:
        outcome = _finish(work(StatementsHere(connection)))
    except Exception as error:
        if not connection.in_transaction:  # a disk that is full takes back everything
            raise sqlite3.OperationalError(str(error)) from error
        connection.execute(_ROLLBACK)
        outcome = named_error(error) if isinstance(error, sqlite3.Error) else error
    connection.execute(_RELEASE)
    return outcome


def _finish(work: Awaitable[Any]) -> object:
    coroutine = cast("Coroutine[Any, Any, Any]", work)
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise TypeError("the work of a transaction awaits something else than its statements")


def named_error(error: sqlite3.Error) -> StorageError:
    failure = (
        DuplicateError(str(error))
        if isinstance(error, sqlite3.IntegrityError)
        else StorageError(f"the database failed: {error}")
    )
    failure.__cause__ = error
    return failure
