"""What is approved is exactly what is shown: nothing hides, and no two texts look the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.tools.approvals.office import Office, call

from fumehood.characters import one_line
from fumehood.tools.approvals.display import COMMENT, KEYWORD, TEXT, draw, notes
from fumehood.tools.approvals.pages import code_lines, summary

HOSTILE = st.text(
    st.sampled_from(
        "ab ⟨⟩→↪·\t\n\r\x0b\x0c\x1b\x85\x9b\x00\x7f\u00a0\u00ad\u0301\u034f\u200b\u202e\u2028\u2066\u3164\ufe0f"
    )
    | st.sampled_from("\U000e0041\ud800漢é#'\"U+0"),
    max_size=30,
)


def shown(text: str, width: int = 40, language: str = "") -> list[tuple[int | None, str]]:
    return [(line.number, str(line)) for line in draw(text, width, language)]


@given(HOSTILE)
def test_nothing_that_is_shown_is_obeyed_or_hidden(text: str) -> None:
    for line in draw(text, 40):
        assert all(character.isprintable() and not "\u0300" <= character <= "\u036f" for character in str(line))


@given(HOSTILE, HOSTILE)
def test_no_two_texts_look_the_same(one: str, other: str) -> None:
    if one != other:
        assert shown(one) != shown(other)


@given(HOSTILE, st.integers(20, 60))
def test_the_text_can_be_read_back_from_what_is_shown(text: str, width: int) -> None:
    assert read_back(shown(text, width)) == text


@pytest.mark.parametrize(
    ("text", "picture"),
    [
        ("x = 1\x1b[2K\rprint()", "x = 1⟨U+001B⟩[2K⟨U+000D⟩print()"),
        ("if a: \u202e# b\u2066", "if a: ⟨U+202E⟩# b⟨U+2066⟩"),
        ("a\u200bb", "a⟨U+200B⟩b"),
        ('x == "\u05d0" and y < 5', 'x == "⟨U+05D0⟩" and y < 5'),
        ("rm \u0627 /tmp/\u0661", "rm ⟨U+0627⟩ /tmp/⟨U+0661⟩"),
        ("a⟨U+200B⟩b", "a⟨U+27E8⟩U+200B⟨U+27E9⟩b"),
        ("\tx  ", "→   x··"),
        ("e\u0301", "e⟨U+0301⟩"),
        ("a\u00a0b", "a⟨U+00A0⟩b"),
        ("\udc80", "⟨U+DC80⟩"),
    ],
)
def test_what_cannot_be_seen_is_shown_by_its_number(text: str, picture: str) -> None:
    assert shown(text) == [(1, picture)]
    assert "\n" not in one_line(text)


def test_blanks_at_the_end_of_a_name_are_marked() -> None:
    assert one_line("a b  ") == "a b··"
    assert one_line("  a") == "  a"


def test_a_long_line_is_folded_and_not_cut() -> None:
    hidden = "x = 1" + " " * 300 + "; import os"
    lines = shown(hidden, 60)
    assert [number for number, _ in lines] == [1, *[None] * (len(lines) - 1)]
    assert lines[-1][1].endswith("; import os")
    assert all(len(text) <= 60 for _, text in lines)


def seen(text: str, width: int = 20) -> list[str]:
    """As it stands on a terminal, where a blank at the end of a row cannot be seen."""
    return [f"{'' if number is None else number:>4} | {line}".rstrip() for number, line in shown(text, width)]


@given(HOSTILE | st.text("ab \t\n", max_size=60), st.integers(20, 24))
def test_no_blank_at_an_end_of_a_row_is_invisible(text: str, width: int) -> None:
    for number, line in shown(text, width):
        inner = line.replace("→   ", "→").removeprefix("↪ ")
        assert not inner.endswith(" ")
        assert number is not None or not inner.startswith(" ")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a" * 19 + " " + "b", "a" * 19 + "b"),
        ("a" * 20 + " " + "b", "a" * 20 + "b"),
        ("a" * 20 + " " * 18 + "b", "a" * 20 + " " * 36 + "b"),
        ("a ", "a"),
        ("a\n", "a"),
        ("a\n ", "a\n"),
        ("a\t", "a"),
    ],
)
def test_texts_that_differ_by_blanks_are_seen_to_differ(one: str, other: str) -> None:
    assert seen(one) != seen(other)


def test_a_blank_where_a_row_ends_or_a_tab_stands_is_marked() -> None:
    assert shown("a" * 19 + " b", 20) == [(1, "a" * 19 + "·"), (None, "↪ b")]
    assert shown("a" * 20 + "  b", 20) == [(1, "a" * 20), (None, "↪ ··b")]
    assert shown("\t a b", 20) == [(1, "→   ·a b")]


def test_all_lines_are_there_however_many_are_empty() -> None:
    assert shown("a" + "\n" * 500 + "evil()")[-1] == (501, "evil()")


def test_other_arguments_are_shown_too() -> None:
    text = "\n".join(map(str, code_lines(call("print(1)\n", env={"LD_PRELOAD": "\x1b]0;x\x07"}), 80)))
    assert "print(1)" in text
    assert "LD_PRELOAD" in text
    assert "\x1b" not in text


def test_other_arguments_are_looked_at_too(tmp_path: Path) -> None:
    wanted = call("print(1)\n", args=["p\u0430ypal.com", "a\u200bb"])
    told = summary(Office(tmp_path).ask(wanted), wanted)
    assert [line for line in told if line.startswith("BEWARE:")] == [
        "BEWARE:    other arguments: hidden characters: U+200B ZERO WIDTH SPACE",
        "BEWARE:    other arguments: letters that may look like others: U+0430 CYRILLIC SMALL LETTER A",
    ]


def styles(code: str) -> dict[str, str]:
    return {piece.text: piece.style for line in draw(code, 80, "python") for piece in line.pieces if piece.style}


def test_python_has_colours() -> None:
    found = styles('import os  # why\nx = "a#b"\n')
    assert (found["import"], found["# why"], found['"a#b"']) == (KEYWORD, COMMENT, TEXT)


@pytest.mark.parametrize("code", ["# a\rimport os", "x = '''\u2028'''", "print('", "def (", "# a\x0cimport os"])
def test_code_that_could_be_read_otherwise_has_no_colours(code: str) -> None:
    assert {style for style in styles(code).values() if style != "strange"} == set()


def test_strange_characters_are_told_in_words() -> None:
    told = notes("p\u0430ypal = 1\nx = '\u202e'\n")
    assert told == [
        "hidden characters: line 2: U+202E RIGHT-TO-LEFT OVERRIDE",
        "letters that may look like others: line 1: U+0430 CYRILLIC SMALL LETTER A",
    ]
    assert notes("print('hello')\n\tx\n") == []


def test_many_strange_letters_do_not_keep_others_from_being_named() -> None:
    cyrillic, code = "".join(map(chr, range(0x430, 0x440))), "\u03bf = 1"
    (told,) = notes(f"# {cyrillic}\n{code}\n{code}\n")
    assert "line 1: U+0430 CYRILLIC SMALL LETTER A" in told
    assert "; and 11 more of CYRILLIC" in told
    assert told.endswith("lines 2, 3: U+03BF GREEK SMALL LETTER OMICRON")
    assert notes("\u03bf\n" * 9) == [
        "letters that may look like others: lines 1, 2, 3, 4, 5 and 4 more: U+03BF GREEK SMALL LETTER OMICRON"
    ]


@pytest.mark.parametrize(
    "sign",
    [
        "\u037e",
        "\uff1b",
        "\u2215",
        "\u2044",
        "\u201c",
        "\u2019",
        "\u2013",
        "\uff08",
        "\uff04",
        "\u0660",
        "\u2223",
        "\uffe8",
    ],
)
def test_signs_that_look_like_others_are_named(sign: str) -> None:
    (told,) = notes(f"x = 1{sign}\n")
    assert told.startswith(f"signs that may look like others: line 1: U+{ord(sign):04X} ")


def read_back(lines: list[tuple[int | None, str]]) -> str:
    """A reader that knows the marks and nothing else."""
    import re

    whole: list[str] = []
    for number, text in lines:
        if number is None:
            whole[-1] += text.removeprefix("↪ ")
        else:
            whole.append(text)
    plain = [line.replace("→   ", "\t").replace("·", " ") for line in whole]
    return re.sub("⟨U\\+([0-9A-F]+)⟩", lambda match: chr(int(match[1], 16)), "\n".join(plain))
