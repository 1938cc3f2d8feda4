"""Every input that fuzzing has kept is tried once more: those that found new paths, and those that found mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.targets import TARGETS

FOLDER = Path(__file__).parents[1] / "fuzz"


@pytest.mark.parametrize("name", TARGETS)
def test_no_kept_input_fails(name: str) -> None:
    inputs = [*TARGETS[name].seeds]
    inputs += [path.read_bytes() for path in sorted((FOLDER / "corpus" / name).glob("*"))]
    inputs += [path.read_bytes() for path in sorted((FOLDER / "findings").glob(f"{name}-*"))]
    for data in inputs:
        TARGETS[name].run(data)
