from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import postgresql
import pytest

from fumehood.server.storage.choice import open_database
from fumehood.server.storage.database import Database


@pytest.fixture(scope="session")
def postgres() -> Iterator[postgresql.PostgresServer]:
    with postgresql.running() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/server.db"
    server: postgresql.PostgresServer = request.getfixturevalue("postgres")
    return server.create_database()


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = open_database(database_url)
    await opened.prepare()
    yield opened
    await opened.close()
