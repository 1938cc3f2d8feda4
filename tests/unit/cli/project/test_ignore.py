"""Rules as in `.gitignore`."""

from __future__ import annotations

import pytest

from fumehood.cli.project.ignore import IgnoreRules
from fumehood.errors import UsageError


def leaves_out(rules: str, path: str) -> bool:
    """A path that ends in a slash is a folder."""
    names = tuple(path.rstrip("/").split("/"))
    return IgnoreRules(()).with_file((), rules).leave_out(names, is_folder=path.endswith("/"))


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        *(("*.log", "x.log"), ("*.log", "a/b/x.log"), ("out", "a/out"), ("out/", "a/out/"), ("/out", "out/")),
        *(("a/b", "a/b"), ("**/x", "x"), ("**/x", "a/b/x"), ("a/**", "a/b"), ("a/**", "a/b/c"), ("a/**/z", "a/z")),
        *(("a/**/z", "a/b/c/z"), ("x?", "xy"), ("[ab].c", "a.c"), ("\\#x", "#x"), ("x  ", "x"), ("*", "anything")),
        ("#c\n\nx", "x"),
    ],
)
def test_a_rule_leaves_out(rule: str, path: str) -> None:
    assert leaves_out(rule, path)


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        *(("*.log", "x.logs"), ("out/", "out"), ("/out", "a/out"), ("a/b", "x/a/b"), ("a/**", "a"), ("# x", "# x")),
        *(("x\n!x", "x"), ("*.py\n!main.py", "main.py"), ("", "x"), ("/", "x"), ("X", "x"), ("a*b", "a/b")),
    ],
)
def test_a_rule_leaves_in(rule: str, path: str) -> None:
    assert not leaves_out(rule, path)


def test_a_rule_holds_below_the_folder_of_its_file() -> None:
    rules = IgnoreRules(()).with_file(("a",), "/x\ny")
    assert [rules.leave_out(place, is_folder=False) for place in [("a", "x"), ("x",), ("a", "b", "y"), ("y",)]] == [
        *(True, False, True, False)
    ]


@pytest.mark.parametrize("path", [".venv/", "node_modules/", "a/__pycache__/", "x.pyc"])
def test_what_stays_out_by_default_can_be_let_in(path: str) -> None:
    names, rules = tuple(path.rstrip("/").split("/")), IgnoreRules.default()
    assert rules.leave_out(names, is_folder=path.endswith("/"))
    assert not rules.with_file((), f"!{names[-1]}").leave_out(names, is_folder=path.endswith("/"))


def test_no_rule_takes_long() -> None:
    """Hostile ones, with many ways to match: trying them one by one would not end."""
    assert not leaves_out("**/a/" * 60 + "b", "/".join("a" * 50))
    assert not leaves_out("*a" * 32 + "b", "a" * 250)


def test_too_many_rules_are_refused() -> None:
    with pytest.raises(UsageError, match="more than 2000 rules"):
        IgnoreRules(()).with_file((), "x\n" * 2001)
