"""The command policy against lines that try to get past it, and against ordinary ones."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from unit.policy.commands.corpus import EVERYDAY, OPEN, PROJECT, REFUSED_ALL_THE_SAME, lines

from fumehood.policy import Commands
from fumehood.policy.commands import judge


def test_there_are_enough_lines_and_none_twice() -> None:
    for name, least in (
        *(("smuggling", 600), ("hostile", 450), ("two_shells", 400), ("sh_alone", 12)),
        *(("ordinary", 300), ("working", 350)),
    ):
        assert len(set(lines(name))) == len(lines(name)) >= least


@pytest.mark.parametrize("commands", [EVERYDAY, OPEN], ids=["with an allow list", "with a deny list alone"])
def test_no_line_smuggles_a_command(commands: Commands) -> None:
    assert [line for line in lines("smuggling") if judge(commands, line).allowed] == []


@pytest.mark.parametrize("is_bash", [True, False], ids=["bash", "sh"])
def test_no_hostile_line_is_allowed(is_bash: bool) -> None:
    hostile = [*lines("hostile"), *lines("two_shells"), *(() if is_bash else lines("sh_alone"))]
    assert [line for line in hostile if judge(EVERYDAY, line, is_bash=is_bash).allowed] == []


@pytest.mark.parametrize("is_bash", [True, False], ids=["bash", "sh"])
def test_a_deny_list_alone_allows_none_that_starts_or_writes_more(is_bash: bool) -> None:
    """The program `time` is a tool of which it is known what it runs."""
    allowed = [line for line in lines("two_shells") if judge(OPEN, line, is_bash=is_bash).allowed]
    assert [line for line in allowed if "time" not in line] == []


def test_no_ordinary_line_is_refused_but_those_that_the_docs_list() -> None:
    refused = {line: str(decision) for line in lines("ordinary") if not (decision := judge(EVERYDAY, line)).allowed}
    assert set(refused) == REFUSED_ALL_THE_SAME


def test_the_docs_list_every_ordinary_line_that_is_refused() -> None:
    page = (Path(__file__).parents[4] / "docs" / "commands.md").read_text(encoding="utf-8").replace("\\|", "|")
    assert [line for line in REFUSED_ALL_THE_SAME if line.split("\n")[0] not in page] == []


def test_nearly_every_ordinary_line_is_allowed_in_sh_too() -> None:
    """But for what sh does not have, which the refusal says; RANDOM is one of those."""
    found = [judge(EVERYDAY, line, is_bash=False) for line in lines("ordinary") if line not in REFUSED_ALL_THE_SAME]
    reasons = [refusal.reason for decision in found for refusal in decision.denied]
    assert [why for why in reasons if "means something else to sh" not in why and "RANDOM" not in why] == []
    assert sum(decision.allowed for decision in found) >= 300


def test_no_line_of_an_agent_at_work_is_refused() -> None:
    refused = {line: str(decision) for line in lines("working") if not (decision := judge(PROJECT, line)).allowed}
    assert refused == {}


@pytest.mark.parametrize("hidden", ["rm x", "git push"])
def test_a_long_line_hides_nothing(hidden: str) -> None:
    for line in (f"ls {'a' * 16_000}; {hidden}", "ls; " * 900 + hidden, f"ls {'x ' * 8_000}; {hidden}"):
        assert not judge(EVERYDAY, line).allowed
    (refusal,) = judge(EVERYDAY, "ls " + "a" * 16_500).denied
    assert (refusal.reason, refusal.fix) == ("it is longer than 16384 bytes", "put it into a file or several lines")
    assert judge(EVERYDAY, "ls " + "a" * 16_000).allowed


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        *(("echo $(", ")"), ("(", ")"), ('echo "$(', ')"'), ("{ ", "; }"), ("cat <(", ")"), ("if true; then ", "; fi")),
        *(("while true; do ", "; done"), ("case x in x) ", ";; esac"), ("bash -c 'echo $(", ")'")),
    ],
)
def test_deep_nesting_hides_nothing_and_breaks_nothing(opening: str, closing: str) -> None:
    for depth in (1, 5, 50, 2000):
        assert not judge(EVERYDAY, f"{opening * depth}rm x{closing * depth}").allowed
    assert judge(EVERYDAY, f"{opening}ls x{closing}").allowed


def test_deep_expansions_hide_nothing_and_break_nothing() -> None:
    for depth in (1, 5, 50, 2000):
        assert not judge(EVERYDAY, f"echo {'${x:-' * depth}$(rm x){'}' * depth}").allowed


@pytest.mark.parametrize(
    "part",
    [
        *("X=1; echo $((X)); ", "for X in a; do ls $X; done; ", "a=b; cat $a; ", "cat 3<a 4<&3; ", "echo {a,b}~ ; "),
        *("echo a:=~/b ; ", "sort -k 1 -- a; ", "awk -F , 1 a; ", "find . -exec echo a \\; ; ", "sed -e s/a/b/ c; "),
    ],
)
def test_the_time_grows_with_the_length_and_no_faster(part: str) -> None:
    def seconds(length: int) -> float:
        start = time.thread_time()  # others may use the processor meanwhile
        judge(EVERYDAY, (part * length)[: length * 16].rpartition(";")[0])
        return time.thread_time() - start

    seconds(64)
    assert min(seconds(1000), seconds(1000)) < 16 * max(seconds(250), 0.01)
