"""The ablation takes protections away by patching the source; a patch that no longer fits would prove nothing.

What it saw stands in SEEN.md, and every attack has to be there.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from escape import seen
from escape.protections import AIMED_AT, COMBINATIONS, ONLY_TOGETHER, PROTECTIONS
from fumehood.proof.trials import TRIALS

SOURCE = Path(__file__).resolve().parents[2] / "src" / "fumehood"


@pytest.mark.parametrize("name", PROTECTIONS)
def test_a_protection_can_still_be_taken_away(name: str) -> None:
    for patch in PROTECTIONS[name]:
        assert patch.old in (SOURCE / patch.file).read_text()


def test_combinations_are_made_of_known_protections() -> None:
    assert {name for names in COMBINATIONS for name in names} | ONLY_TOGETHER | set(AIMED_AT) <= set(PROTECTIONS)


def attacks() -> set[str]:
    files = Path(__file__).parent.glob("test_*.py")
    return {name for path in files for name in re.findall(r"^async def (test_\w+)", path.read_text(), re.MULTILINE)}


def test_every_attack_was_seen_to_succeed_or_has_a_reason_why_not() -> None:
    succeeded = {test for tests in seen.rows().values() for test in tests}
    assert succeeded | seen.unseen() == attacks()
    assert not succeeded & seen.unseen()


def test_what_was_seen_can_be_seen_again() -> None:
    chosen = {name for name in PROTECTIONS if name not in ONLY_TOGETHER} | {", ".join(names) for names in COMBINATIONS}
    assert {row.removesuffix(seen.ROOTLESS) for row in seen.rows()} <= chosen


def test_what_a_proof_notices_is_of_known_protections_and_trials() -> None:
    rows = seen.noticed()
    assert set(rows) == set(PROTECTIONS) - ONLY_TOGETHER
    named = {name for row in rows.values() for name in row.partition(": ")[2].split(", ") if name}
    assert named <= {trial.name for trial in TRIALS}
