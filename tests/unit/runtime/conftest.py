"""Every test of the runtime runs with envelopes as they are and as bytes on their way, on asyncio and on trio."""

from __future__ import annotations

import pytest
from unit.runtime.sample_agents import MakeRuntime

from fumehood.runtime import LocalRuntime, SerialisingRuntime


@pytest.fixture(scope="session", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[LocalRuntime, SerialisingRuntime], ids=["local", "bytes"])
def make_runtime(request: pytest.FixtureRequest) -> MakeRuntime:
    def make(**options: object) -> LocalRuntime:
        return request.param(**{"audit": False, **options})

    return make
