"""The command policy against real shells: what it allows may start only what it allows, in bash and in dash."""

from __future__ import annotations

import random
import shutil
from itertools import islice

import pytest
import sampling
from requirements import require
from unit.policy.commands.corpus import EVERYDAY, lines
from unit.policy.commands.generation import MAKERS
from unit.policy.commands.oracle import is_forbidden, started

from fumehood.policy import Commands
from fumehood.policy.commands import judge
from fumehood.policy.commands.tools import TOOLS

SHELLS = ("/bin/bash", "/bin/dash")
_SHELLS = pytest.mark.parametrize("shell", SHELLS)
# Of each kind that is made at random.
LINES_RUN = sampling.amount(30, whole=300)
# That lines do harm is a property of the lines, not of the code: one in eight is run, one in two in `make test-all`.
EVERY = sampling.amount(8, whole=2)
# Of those that are allowed, and of git's options.
ORDINARY = sampling.amount(4, whole=2)
OPTIONS = sampling.amount(8, whole=1)


@pytest.mark.timeout(240)
def test_many_of_the_smuggling_lines_really_run_what_they_must_not() -> None:
    require(shutil.which("bash"), "needs bash")
    attempts = [line for line in lines("smuggling") if "\0" not in line][::EVERY]
    successes = sum(any(map(is_forbidden, commands)) for commands in started(attempts))
    assert successes >= 0.3 * len(attempts)


@pytest.mark.timeout(240)
def test_most_of_the_hostile_lines_really_run_or_write_what_they_must_not() -> None:
    """Nothing of this is allowed, which says little about lines that would do no harm."""
    require(shutil.which("bash") and shutil.which("git"), "needs bash and git")
    attempts = lines("hostile")[::EVERY]
    successes = sum(any(map(is_forbidden, commands)) for commands in started(attempts))
    assert successes >= 0.8 * len(attempts)


@pytest.mark.timeout(240)
def test_the_lines_for_two_shells_act_in_one_of_them_at_least() -> None:
    require(shutil.which("dash") and shutil.which("git"), "needs bash, dash and git")
    attempts = lines("two_shells")[::EVERY]
    found = [[any(map(is_forbidden, commands)) for commands in started(attempts, shell)] for shell in SHELLS]
    idle = [line for line, *acts in zip(attempts, *found, strict=True) if not any(acts)]
    assert len(idle) <= 0.1 * len(attempts), idle  # not every machine has zip, xxd and the like
    assert all(sum(acts) >= 0.6 * len(attempts) for acts in found)


@pytest.mark.timeout(240)
def test_the_lines_for_sh_alone_act_in_dash_and_not_in_bash() -> None:
    require(shutil.which("dash"), "needs bash and dash")
    attempts = lines("sh_alone")
    in_bash, in_dash = ([any(map(is_forbidden, commands)) for commands in started(attempts, shell)] for shell in SHELLS)
    assert all(in_dash)
    assert not any(in_bash)


@pytest.mark.timeout(240)
def test_what_the_table_of_git_takes_for_a_value_is_one() -> None:
    """Otherwise an unknown value would be an option, such as the one that writes a file."""
    require(shutil.which("bash") and shutil.which("git"), "needs bash and git")
    policy = Commands(allow=("git",), deny=("git push",))
    made = [
        f'echo --output=.bashrc > f.txt; read -r y < f.txt; {name} {option} "$y" {ending}'
        for name, tool in TOOLS.items()
        if name.startswith("git ")
        for option in sorted(tool.takes_value | tool.optional | tool.flags)
        for ending in ("", "-- --output=.bashrc")
    ]
    passed = [line for line in made if judge(policy, line).allowed]
    assert len(passed) >= 100
    chosen = passed[::OPTIONS]
    holes = [line for line, commands in zip(chosen, started(chosen), strict=True) if any(map(is_forbidden, commands))]
    assert holes == []


@pytest.mark.timeout(240)
@_SHELLS
def test_an_ordinary_line_starts_only_what_is_allowed(shell: str) -> None:
    require(shutil.which(shell), f"needs {shell}")
    allowed = {rule.split()[0] for rule in EVERYDAY.allow or ()}
    judged = (line for line in lines("ordinary") if "sleep" not in line)
    chosen = [line for line in judged if judge(EVERYDAY, line, is_bash=shell == "/bin/bash").allowed][::ORDINARY]
    strange = {
        line: commands
        for line, commands in zip(chosen, started(chosen, shell), strict=True)
        if any(command[0] not in allowed or is_forbidden(command) for command in commands)
    }
    assert strange == {}


@pytest.mark.timeout(240)
@_SHELLS
@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_lines_made_at_random_start_only_what_is_allowed(maker: object, shell: str) -> None:
    require(shutil.which(shell) and shutil.which("git"), f"needs {shell} and git")
    assert callable(maker)
    chance = random.Random(20_261_116)
    made = {str(maker(chance)) for _ in range(6_000)}
    telling = sorted(filter(_is_telling, made))
    allowed = (line for line in telling if judge(EVERYDAY, line, is_bash=shell == "/bin/bash").allowed)
    passed = list(islice(allowed, LINES_RUN))
    assert len(passed) >= 20, "nearly nothing is allowed, which proves nothing"
    ran = zip(passed, started(passed, shell), strict=True)
    assert [line for line, commands in ran if any(map(is_forbidden, commands))] == []


def _is_telling(line: str) -> bool:
    return "\0" not in line and any(word in line for word in ("rm", "PATH", ".bashrc", ".git", "config"))
