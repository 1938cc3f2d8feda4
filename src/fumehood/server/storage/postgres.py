"""PostgreSQL: for several servers. The tables belong to one role, the server works as another, for which every row of
another tenant than the transaction's does not exist.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from fumehood.server.storage import schema
from fumehood.server.storage.database import EVERYTHING, DuplicateError, Row, StorageError, Transaction, Value, checked

if TYPE_CHECKING:
    from psycopg import AsyncConnection

T = TypeVar("T")
_ROLE = "fumehood_server"
_OPEN_SECONDS = 30.0
_VISIBLE = (
    f"tenant = current_setting('fumehood.tenant', true) OR current_setting('fumehood.tenant', true) = '{EVERYTHING}'"
)


class PostgresDatabase:
    def __init__(self, url: str, *, connections: int = 8) -> None:
        from psycopg.rows import dict_row
        from psycopg_pool import AsyncConnectionPool

        self._pool = AsyncConnectionPool(
            url, min_size=1, max_size=connections, open=False, kwargs={"row_factory": dict_row}
        )

    async def prepare(self) -> None:
        await self._open()
        async with self._connection() as connection, connection.transaction():
            _check_encoding(connection)
            # One server at a time makes the tables.
            await connection.execute("SELECT pg_advisory_xact_lock(7035221)")
            await connection.execute(schema.FACTS)
            found = await (await connection.execute(schema.READ_VERSION)).fetchone()
            if found:
                schema.check_version(found["value"])
            else:
                for statement in (*schema.statements(), *_separation()):
                    await connection.execute(_literal(statement))
            await _check_separation(connection)

    async def _open(self) -> None:
        """The pool warns of each attempt with the reason, and says in the end how long it has tried."""
        from psycopg_pool import PoolTimeout

        try:
            await self._pool.open(wait=True, timeout=_OPEN_SECONDS)
        except PoolTimeout:
            raise StorageError(
                f"the database could not be reached in {_OPEN_SECONDS:g} s: the warnings say why; see --database"
            ) from None

    @asynccontextmanager
    async def transaction(self, tenant: str) -> AsyncIterator[_PostgresTransaction]:
        async with self._connection() as connection, connection.transaction():
            await connection.execute(f"SET LOCAL ROLE {_ROLE}")
            await connection.execute("SELECT set_config('fumehood.tenant', %s, true)", (tenant,))
            if tenant != EVERYTHING:
                # Counting and inserting is one step for a tenant, whatever server does it.
                await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (tenant,))
            yield _PostgresTransaction(connection)

    async def transact(self, tenant: str, work: Callable[[Transaction], Awaitable[T]]) -> T:
        async with self.transaction(tenant) as transaction:
            return await work(transaction)

    async def close(self) -> None:
        await self._pool.close()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        from psycopg import Error
        from psycopg.errors import UniqueViolation
        from psycopg_pool import PoolTimeout

        try:
            async with self._pool.connection(timeout=5) as connection:
                yield connection
        except UniqueViolation as error:
            raise DuplicateError(str(error)) from error
        except (Error, PoolTimeout) as error:
            raise StorageError(f"the database failed: {error}") from error


def _check_encoding(connection: AsyncConnection[Any]) -> None:
    """In a database without an encoding, text comes back as bytes."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StorageError(f"the database has the encoding {encoding}; make one with ENCODING 'UTF8'")


def _separation() -> list[str]:
    """Row-level security, which a table's owner is free of: hence the second role."""
    made = [
        f"DO $$ BEGIN CREATE ROLE {_ROLE} NOLOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        f"GRANT {_ROLE} TO CURRENT_USER",
        *(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {_ROLE}" for table in schema.TABLES),
    ]
    for table in schema.OF_TENANTS:
        made += [
            f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
            f"DROP POLICY IF EXISTS of_tenant ON {table}",
            f"CREATE POLICY of_tenant ON {table} TO {_ROLE} USING ({_VISIBLE}) WITH CHECK ({_VISIBLE})",
        ]
    return made


async def _check_separation(connection: AsyncConnection[Any]) -> None:
    """StorageError if a table of tenants is not separated by rows, because an administrator has changed that."""
    rows = await connection.execute(
        "SELECT relname FROM pg_class JOIN pg_policies ON tablename = relname AND policyname = 'of_tenant' "
        "WHERE relrowsecurity AND relnamespace = current_schema()::regnamespace AND schemaname = current_schema()"
    )
    separated = {row["relname"] for row in await rows.fetchall()}
    if missing := sorted(set(schema.OF_TENANTS) - separated):
        raise StorageError(
            f"the table {missing[0]} has no row-level security, which keeps tenants apart; "
            "restore its policy `of_tenant`, or use another database"
        )


class _PostgresTransaction:
    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection

    async def execute(self, statement: str, *values: Value) -> int:
        return (await self._connection.execute(_own_marks(statement), checked(values))).rowcount

    async def rows(self, statement: str, *values: Value) -> Sequence[Row]:
        return await (await self._connection.execute(_own_marks(statement), checked(values))).fetchall()

    async def row(self, statement: str, *values: Value) -> Row | None:
        return await (await self._connection.execute(_own_marks(statement), checked(values))).fetchone()


def _own_marks(statement: str) -> Any:
    return statement.replace("%", "%%").replace("?", "%s")


def _literal(statement: str) -> Any:
    """For a type that wants statements to be literals, which those made of constants are not to a type checker."""
    return statement
