"""A room for each test."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.sandbox.files.rooms import Room


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path / "root")
