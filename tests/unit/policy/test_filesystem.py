"""Which files may leave."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.policy.filesystem import Outputs

PARTS = st.sampled_from(["**", "*", "a", "b", "a*", "?", "[ab]", "*b*", "[!a]"])
PATTERNS = st.lists(PARTS, min_size=1, max_size=5).map("/".join)
PATHS = st.lists(st.sampled_from(["a", "b", "ab", ".a", "c\nb"]), max_size=5)


def reference(pattern: list[str], path: list[str]) -> bool:
    """The meaning, spelled out without a care for time."""
    match pattern, path:
        case [], _:
            return not path
        case ["**"], _:
            return bool(path)
        case ["**", *rest], _:
            return any(reference(rest, path[skipped:]) for skipped in range(len(path) + 1))
        case [part, *rest], [name, *names]:
            return fnmatch.fnmatchcase(name, part) and reference(rest, names)
        case _:
            return False


@given(PATTERNS, PATHS.filter(bool))
def test_a_pattern_means_what_it_says(pattern: str, path: list[str]) -> None:
    assert Outputs([pattern]).match("/".join(path)) == reference(pattern.split("/"), path)


@given(PATTERNS, PATHS, PATHS.filter(bool))
def test_a_folder_with_a_match_below_it_is_reached(pattern: str, folder: list[str], below: list[str]) -> None:
    outputs = Outputs([pattern])
    if outputs.match("/".join([*folder, *below])):
        assert outputs.reach("/".join(folder))


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("out/**", ["out/x", "out/a/b", "out/.hidden"], ["out", "outer/x", "x/out/y"]),
        ("*.csv", ["a.csv", ".csv"], ["out/a.csv", "a.csv.txt", "A.CSV"]),
        ("**/*.csv", ["a.csv", "x/y/a.csv"], ["a.csv/x"]),
        ("**", ["a", "a/b"], [""]),
        ("a/**/b", ["a/b", "a/x/y/b"], ["a", "b", "a/b/c"]),
        ("report?.[ch]", ["report1.c", "report\n.h"], ["report.c", "report12.c"]),
        ("[", ["["], ["x"]),
        ("a**b", ["ab", "axyb"], ["a/b"]),
    ],
)
def test_patterns_of_everyday(pattern: str, matching: list[str], others: list[str]) -> None:
    outputs = Outputs([pattern])
    assert [path for path in matching if not outputs.match(path)] == []
    assert [path for path in others if outputs.match(path)] == []


def test_no_patterns_let_nothing_out() -> None:
    assert not Outputs([]).match("x")
    assert not Outputs([]).reach("")


def test_folders_that_no_pattern_can_reach_need_not_be_looked_at() -> None:
    outputs = Outputs(["out/*.csv", "logs/**/x"])
    assert outputs.reach("")
    assert outputs.reach("out")
    assert outputs.reach("logs/a/b/c")
    assert not outputs.reach("out/deep")
    assert not outputs.reach("cache")


def test_a_pattern_made_to_take_long_does_not() -> None:
    """A matcher that tries one reading after the other would not end here."""
    assert not Outputs(["/".join(["**", "a"] * 50) + "/b"]).match("/".join(["a"] * 200))
    assert not Outputs(["*a" * 100 + "b"]).match("a" * 255)


@pytest.mark.parametrize(("pattern", "asked"), [("**", False), (".git/**", True), ("repo/.git/config", True)])
def test_version_control_has_to_be_named(pattern: str, asked: bool) -> None:
    assert Outputs([pattern]).ask_for_git == asked
