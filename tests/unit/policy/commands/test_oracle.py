"""The command policy against real bash: what it allows may start only what it allows."""

from __future__ import annotations

import random
import shutil

import pytest
from requirements import require
from unit.policy.commands.corpus import EVERYDAY, lines
from unit.policy.commands.generation import MAKERS
from unit.policy.commands.oracle import is_forbidden, started

from fumehood.policy.commands import judge


@pytest.mark.timeout(240)
def test_more_than_a_hundred_of_the_smuggling_lines_really_run_what_they_must_not() -> None:
    require(shutil.which("bash"), "needs bash")
    attempts = [line for line in lines("smuggling") if "\0" not in line][::2]
    successes = sum(any(map(is_forbidden, commands)) for commands in started(attempts))
    assert successes >= 120


@pytest.mark.timeout(240)
def test_most_of_the_hostile_lines_really_run_or_write_what_they_must_not() -> None:
    """Nothing of this is allowed, which says little about lines that would do no harm."""
    require(shutil.which("bash") and shutil.which("git"), "needs bash and git")
    attempts = lines("hostile")[::2]
    successes = sum(any(map(is_forbidden, commands)) for commands in started(attempts))
    assert successes >= 0.8 * len(attempts)


@pytest.mark.timeout(240)
def test_an_ordinary_line_starts_only_what_is_allowed() -> None:
    require(shutil.which("bash"), "needs bash")
    allowed = {rule.split()[0] for rule in EVERYDAY.allow or ()}
    chosen = [line for line in lines("ordinary") if "sleep" not in line and judge(EVERYDAY, line).allowed][::2]
    strange = {
        line: commands
        for line, commands in zip(chosen, started(chosen), strict=True)
        if any(command[0] not in allowed or is_forbidden(command) for command in commands)
    }
    assert strange == {}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_lines_made_at_random_start_only_what_is_allowed(maker: object) -> None:
    require(shutil.which("bash") and shutil.which("git"), "needs bash and git")
    assert callable(maker)
    chance = random.Random(20_261_116)
    made = {str(maker(chance)) for _ in range(6_000)}
    passed = sorted(line for line in made if _is_telling(line) and judge(EVERYDAY, line).allowed)[:300]
    assert len(passed) >= 20, "nearly nothing is allowed, which proves nothing"
    holes = [line for line, commands in zip(passed, started(passed), strict=True) if any(map(is_forbidden, commands))]
    assert holes == []


def _is_telling(line: str) -> bool:
    return "\0" not in line and any(word in line for word in ("rm", "PATH", ".bashrc", ".git", "config"))
