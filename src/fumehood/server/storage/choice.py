"""The database that an address names."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from fumehood.errors import UsageError
from fumehood.server.storage.database import Database

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


def is_shared(url: str) -> bool:
    """Whether several servers can use it."""
    return url.startswith(_POSTGRES)


def open_database(url: str) -> Database:
    """Not yet prepared. StorageError if it is in use and cannot be shared."""
    if url.startswith(_SQLITE):
        from fumehood.server.storage.sqlite import SqliteDatabase

        return SqliteDatabase(Path("/" + url.removeprefix(_SQLITE).lstrip("/")))
    if is_shared(url):
        if find_spec("psycopg_pool") is None:
            raise UsageError("PostgreSQL needs its client: pip install 'fumehood[postgres]'")
        from fumehood.server.storage.postgres import PostgresDatabase

        return PostgresDatabase(url)
    raise UsageError(f"the database {url!r} is not known; write sqlite:///PATH or postgresql://USER@HOST/NAME")
