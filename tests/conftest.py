"""What every test shares: the event loop that async tests (`pytest.mark.anyio`) run on."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
