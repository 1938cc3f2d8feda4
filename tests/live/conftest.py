"""Tests that count what is left begin with nothing: warm cells of earlier tests would come and go while they count.

Tests that use `way` run twice: `hood run` is done by a keeper, and by the process itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from live.keepers import module_keeper, way  # noqa: F401
from requirements import require

from fumehood import Policy
from fumehood.backends.native.backend import NativeBackend
from fumehood.backends.selection import select_backend

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the session: the event loop that it has in this thread is in the way of other tests."""
    from live.console_browser import open_browser

    require(shutil.which("chromium"), "chromium is not installed")
    with open_browser() as opened:
        yield opened


@pytest.fixture(autouse=True)
def no_warm_cells(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("serial") is None:
        return
    backend = select_backend(Policy())
    assert isinstance(backend, NativeBackend)
    backend.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "way" in metafunc.fixturenames:
        is_plain = metafunc.definition.get_closest_marker("plain_only")
        metafunc.parametrize("way", ["plain"] if is_plain else ["plain", "keeper"], indirect=True)
