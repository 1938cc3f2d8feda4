"""Every test of the runtime runs twice: in process, and with envelopes that are bytes on their way."""

from __future__ import annotations

import pytest
from unit.runtime.troupe import MakeRuntime

from fumehood.runtime import LocalRuntime, SerialisingRuntime


@pytest.fixture(params=[LocalRuntime, SerialisingRuntime], ids=["local", "bytes"])
def make_runtime(request: pytest.FixtureRequest) -> MakeRuntime:
    def make(**options: object) -> LocalRuntime:
        return request.param(**{"audit": False, **options})

    return make
