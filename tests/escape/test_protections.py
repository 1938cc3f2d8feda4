"""The ablation takes protections away by patching the source; a patch that no longer fits would prove nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from escape.protections import COMBINATIONS, PROTECTIONS

SOURCE = Path(__file__).resolve().parents[2] / "src" / "fumehood"


@pytest.mark.parametrize("name", PROTECTIONS)
def test_a_protection_can_still_be_taken_away(name: str) -> None:
    for patch in PROTECTIONS[name]:
        assert patch[1] in (SOURCE / patch[0]).read_text()


def test_combinations_are_made_of_known_protections() -> None:
    assert {name for names in COMBINATIONS for name in names} <= set(PROTECTIONS)
