from __future__ import annotations

from pathlib import Path

import pytest
from unit.agents.runtime_staff import MakeRuntime
from unit.agents.witness import Witness

from fumehood.runtime import LocalRuntime, SerialisingRuntime


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return Witness(tmp_path)


@pytest.fixture(params=[LocalRuntime, SerialisingRuntime], ids=["local", "bytes"])
def make_runtime(request: pytest.FixtureRequest, witness: Witness) -> MakeRuntime:
    def make(**options: object) -> LocalRuntime:
        return request.param(**{"audit": witness.log, **options})

    return make
