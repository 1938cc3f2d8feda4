"""What every test shares: the event loop that async tests (`pytest.mark.anyio`) run on, and a Docker engine."""

from __future__ import annotations

import os
from collections.abc import Generator

import differences
import engine
import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Before the first test and its clock: making the engine's image can take longer than a test may."""
    wanted = any(getattr(item, "callspec", None) and _backend(item) in engine.BACKENDS for item in session.items)
    if wanted and not session.config.option.collectonly and engine.missing() is None:
        os.environ["DOCKER_HOST"] = engine.use()


def _backend(item: pytest.Item) -> object:
    return item.callspec.params.get("backend")  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    differences.look_again(item, call, report)
    return report
