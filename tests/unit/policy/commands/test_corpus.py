"""The command policy against lines that try to get past it, and against ordinary ones."""

from __future__ import annotations

import pytest
from unit.policy.commands.corpus import EVERYDAY, OPEN, lines

from fumehood.policy import Commands
from fumehood.policy.commands import judge


def test_there_are_enough_lines_and_none_twice() -> None:
    for name, least in (("smuggling", 600), ("ordinary", 300)):
        assert len(set(lines(name))) == len(lines(name)) >= least


@pytest.mark.parametrize("commands", [EVERYDAY, OPEN], ids=["with an allow list", "with a deny list alone"])
def test_no_line_smuggles_a_command(commands: Commands) -> None:
    assert [line for line in lines("smuggling") if judge(commands, line).allowed] == []


def test_no_ordinary_line_is_refused() -> None:
    refused = {line: str(verdict) for line in lines("ordinary") if not (verdict := judge(EVERYDAY, line)).allowed}
    assert refused == {}


@pytest.mark.parametrize("hidden", ["rm x", "git push"])
def test_a_long_line_hides_nothing(hidden: str) -> None:
    for line in (f"ls {'a' * 60_000}; {hidden}", "ls; " * 900 + hidden, f"ls {'x ' * 20_000}; {hidden}"):
        assert not judge(EVERYDAY, line).allowed
    assert not judge(EVERYDAY, "ls " + "a" * 70_000).allowed


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        *(("echo $(", ")"), ("(", ")"), ('echo "$(', ')"'), ("{ ", "; }"), ("cat <(", ")"), ("if true; then ", "; fi")),
        *(("while true; do ", "; done"), ("case x in x) ", ";; esac"), ("bash -c 'echo $(", ")'"), ("f() { ", "; }")),
    ],
)
def test_deep_nesting_hides_nothing_and_breaks_nothing(opening: str, closing: str) -> None:
    for depth in (1, 5, 50, 2000):
        assert not judge(EVERYDAY, f"{opening * depth}rm x{closing * depth}").allowed
    assert judge(EVERYDAY, f"{opening}ls x{closing}").allowed


def test_deep_expansions_hide_nothing_and_break_nothing() -> None:
    for depth in (1, 5, 50, 2000):
        assert not judge(EVERYDAY, f"echo {'${x:-' * depth}$(rm x){'}' * depth}").allowed
