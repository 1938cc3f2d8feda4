"""What every test shares: the event loop of async tests (`pytest.mark.anyio`), a Docker engine, an audit log."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

import engine
import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def audit_folder() -> Iterator[str]:
    """Also for the processes that tests start: nothing is written to the user's own log."""
    folder = tempfile.mkdtemp(prefix="hood-audit-", dir="/var/tmp")
    os.environ["FUMEHOOD_AUDIT"] = folder
    yield folder
    shutil.rmtree(folder)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Before the first test and its clock: making the engine's image can take longer than a test may."""
    wanted = any(getattr(item, "callspec", None) and _backend(item) in engine.BACKENDS for item in session.items)
    if wanted and not session.config.option.collectonly and engine.missing() is None:
        os.environ["DOCKER_HOST"] = engine.use()


def _backend(item: pytest.Item) -> object:
    return item.callspec.params.get("backend")  # type: ignore[attr-defined]
