"""What every test shares: the event loop of async tests (`pytest.mark.anyio`), a Docker engine, an audit log."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """gVisor is slow under our engine: every test runs there once, and with all its parameters if GVISOR=all."""
    if os.environ.get("GVISOR") == "all":
        return
    seen: set[tuple[Path, str]] = set()
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        test = (item.path, item.name.partition("[")[0])
        is_slow = differences.backend_of(item) == "gvisor"
        (dropped if is_slow and test in seen else kept).append(item)
        if is_slow:
            seen.add(test)
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept


def pytest_collection_finish(session: pytest.Session) -> None:
    """Before the first test and its clock: making the engine's image can take longer than a test may."""
    wanted = any(map(_needs_engine, session.items))
    if wanted and not session.config.option.collectonly and engine.missing() is None:
        os.environ["DOCKER_HOST"] = engine.use()


def _needs_engine(item: pytest.Item) -> bool:
    """It runs on a backend that is built on one, or its module uses it directly."""
    return (
        differences.backend_of(item) in engine.BACKENDS
        or getattr(getattr(item, "module", None), "engine", None) is engine
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    differences.look_again(item, call, report)
    return report
