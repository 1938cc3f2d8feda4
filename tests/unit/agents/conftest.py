from __future__ import annotations

from pathlib import Path

import pytest
from unit.agents.watching import Witness


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return Witness(tmp_path)
