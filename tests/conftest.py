"""What every test shares: the event loop of async tests (`pytest.mark.anyio`), a Docker engine, an audit log."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator, Iterator

import differences
import engine
import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def audit_folder() -> Iterator[str]:
    """Also for the processes that tests start: nothing is written to the user's own log or approvals."""
    folder = tempfile.mkdtemp(prefix="hood-audit-", dir="/var/tmp")
    os.environ["FUMEHOOD_AUDIT"] = folder
    os.environ["FUMEHOOD_APPROVALS"] = os.path.join(folder, "approvals")
    yield folder
    shutil.rmtree(folder)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Before the first test and its clock: making the engine's image can take longer than a test may."""
    wanted = any(map(_needs_engine, session.items))
    if wanted and not session.config.option.collectonly and engine.missing() is None:
        os.environ["DOCKER_HOST"] = engine.use()


def _needs_engine(item: pytest.Item) -> bool:
    """It runs on a backend that is built on one, or its module uses it directly."""
    callspec = getattr(item, "callspec", None)
    is_on_engine = callspec is not None and callspec.params.get("backend") in engine.BACKENDS
    return is_on_engine or getattr(getattr(item, "module", None), "engine", None) is engine


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    differences.look_again(item, call, report)
    return report
