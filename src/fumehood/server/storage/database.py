"""What the server needs of a database, whichever it is: transactions, each on behalf of one tenant."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from fumehood.errors import UsageError

T = TypeVar("T")
Value = str | int | float | bytes | None
Row = Mapping[str, Value]

EVERYTHING = "*"
"""In the place of a tenant: for the server's own work, never for a request of a tenant's."""


class StorageError(Exception):
    """The database did not do what it was asked; nothing of the transaction has happened."""


class DuplicateError(StorageError):
    """There is such a row already."""


def checked(values: Sequence[Value]) -> Sequence[Value]:
    """UsageError for text that not every database takes: it is a client's, and no failure of the database."""
    for value in values:
        if isinstance(value, str) and ("\0" in value or not _is_unicode(value)):
            raise UsageError("text must be Unicode, without NUL characters and lone surrogates")
    return values


def _is_unicode(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


class Transaction(Protocol):
    """Statements have `?` for each value."""

    async def execute(self, statement: str, *values: Value) -> int:
        """How many rows it changed."""
        ...

    async def rows(self, statement: str, *values: Value) -> Sequence[Row]: ...

    async def row(self, statement: str, *values: Value) -> Row | None:
        """The first, if there is one."""
        ...


class Database(Protocol):
    def transaction(self, tenant: str) -> AbstractAsyncContextManager[Transaction]:
        """All of the block or nothing. Those of one tenant come one after another, whatever server they are of: what is
        counted in one stays true until it ends. Those for EVERYTHING do not wait for each other.

        StorageError if the database is gone. Not to be nested: the inner one would wait for the outer one.
        """
        ...

    async def transact(self, tenant: str, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """The same for `work`, which awaits statements of its transaction and nothing else.

        A database may then do the whole of it in one step, and together with the work of others.
        """
        ...

    async def prepare(self) -> None:
        """Makes the tables, unless they are there; StorageError if they are not as this server needs them."""
        ...

    async def close(self) -> None: ...
