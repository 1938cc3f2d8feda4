"""Differences of two texts, line by line."""

from __future__ import annotations

from fumehood.server.console.text_diff import DiffLine, text_diff


def told(before: str, after: str) -> list[str]:
    return [f"{line.sign}{line.text}" for line in text_diff(before, after)]


def test_what_changed_stands_between_a_little_of_what_did_not() -> None:
    before = "".join(f"{number}\n" for number in range(10))
    found = told(before, before.replace("5\n", "five\nmore\n"))
    assert found == [
        "…2 lines as before",
        " 2",
        " 3",
        " 4",
        "-5",
        "+five",
        "+more",
        " 6",
        " 7",
        " 8",
        "…1 line as before",
    ]


def test_the_same_text_has_no_differences_and_none_has_all() -> None:
    assert told("a\nb\n", "a\nb\n") == []
    assert told("", "a\nb\n") == ["+a", "+b"]
    assert told("a\na\n", "a\n") == [" a", "-a"]


def test_texts_that_differ_much_are_not_compared_for_long() -> None:
    before, after = "a\nb\n" * 5000, "b\na\n" * 5000 + "c\n"
    found = text_diff(before, after)
    assert found[0] == DiffLine("-", "a")
    assert sum(line.sign == "-" for line in found) + sum(line.sign == "+" for line in found) == 20001
