"""The command policy against real bash: what it allows may start only what it allows."""

from __future__ import annotations

import random
import shutil

import pytest
from requirements import require
from unit.policy.commands.corpus import EVERYDAY, lines
from unit.policy.commands.oracle import is_forbidden, started

from fumehood.policy.commands import judge

# What a line is made of, wherever a reader may lose its way.
_MARKS = """
rm x|ls|echo|cat|'|"|`|$(|)|${|}|{|(|;|&|&&|\\|#|<<EOF⏎|EOF|⏎EOF⏎|<<'EOF'⏎|<<-EOF⏎|$((|))|((|[[|]]|if|then|fi|else
|for i in|do|done|case x in|esac|x)|;;|f()|f|function f|x=|$x|${x:-|x=(|<(|>(|<|>|2>&1|> o.txt|!|time|eval|bash -c|xargs
|find . -exec|{} \\;|env|a|=|'rm x'|"rm x"|*|~|$'|in|\\'|\\"|$|${x#|@|rm|<<<|while|until|-c|--|1|é
"""
_TRICKS = (
    *("PATH=. ", "export PATH=.;", "read PATH <<< .;", "> .bashrc", '> "$x.bashrc"', "x='a[$(rm x)]';", "$((x))"),
    *("xargs -I{} ", "timeout 5 ", "sed '1e rm x' ", "sort --compress-program=rm ", "set -- rm x;", '"$@"', "f() { "),
    *("; }; f ", "trap 'rm x' EXIT;", "awk 'BEGIN{print 1}' ", "alias ls=rm;", "export ", "{rm,x}", "\\rm "),
)
PIECES = (
    *_MARKS.replace("\n", "").replace("⏎", "\n").split("|"),
    *("\n", " ", "|", "||", "\t", "\\\n"),
    *_TRICKS,
)


@pytest.mark.timeout(240)
def test_more_than_a_hundred_of_the_smuggling_lines_really_run_what_they_must_not() -> None:
    require(shutil.which("bash"), "needs bash")
    attempts = [line for line in lines("smuggling") if "\0" not in line][::2]
    successes = sum(any(map(is_forbidden, commands)) for commands in started(attempts))
    assert successes >= 120


@pytest.mark.timeout(240)
def test_an_ordinary_line_starts_only_what_is_allowed() -> None:
    require(shutil.which("bash"), "needs bash")
    allowed = {rule.split()[0] for rule in EVERYDAY.allow or ()}
    chosen = [line for line in lines("ordinary") if "sleep" not in line][::2]
    strange = {
        line: commands
        for line, commands in zip(chosen, started(chosen), strict=True)
        if any(command[0] not in allowed or is_forbidden(command) for command in commands)
    }
    assert strange == {}


@pytest.mark.timeout(240)
def test_lines_made_at_random_start_only_what_is_allowed() -> None:
    require(shutil.which("bash"), "needs bash")
    chance = random.Random(20_261_116)
    made = {_mutation(chance) if chance.random() < 0.5 else _soup(chance) for _ in range(10_000)}
    passed = sorted(line for line in made if _is_telling(line) and judge(EVERYDAY, line).allowed)
    assert len(passed) >= 50, "nearly nothing is allowed, which proves nothing"
    holes = [line for line, commands in zip(passed, started(passed), strict=True) if any(map(is_forbidden, commands))]
    assert holes == []


def _is_telling(line: str) -> bool:
    return "\0" not in line and any(word in line for word in ("rm", "PATH", ".bashrc"))


def _soup(chance: random.Random) -> str:
    return "".join(chance.choice(PIECES) + chance.choice(["", "", " "]) for _ in range(chance.randint(2, 10)))


def _mutation(chance: random.Random) -> str:
    letters = list(chance.choice(lines("ordinary")))
    for _ in range(chance.randint(1, 4)):
        place = chance.randint(0, len(letters))
        if chance.random() < 0.3:
            del letters[place : place + 1]
        else:
            letters[place:place] = chance.choice([*PIECES, ";rm x;", "$(rm x)", "\nrm x\n"])
    return "".join(letters)
