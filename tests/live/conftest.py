"""Tests that count what is left begin with nothing: warm cells of earlier tests would come and go while they count."""

from __future__ import annotations

import pytest

from fumehood import Policy
from fumehood.backends.native.backend import NativeBackend
from fumehood.backends.selection import select_backend


@pytest.fixture(autouse=True)
def no_warm_cells(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("serial") is None:
        return
    backend = select_backend(Policy())
    assert isinstance(backend, NativeBackend)
    backend.close()
