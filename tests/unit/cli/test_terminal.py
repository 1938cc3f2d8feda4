"""A terminal shows what a program says and obeys nothing of it but colours."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.cli.terminal import TerminalFilter, neutralise

COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
HOSTILE = st.text(st.sampled_from("\x1b\x9b[]0;31mH\n\r\t\x07\x08\x00\x7f\x85aä€\u202a\u202e\u2066\u2069"), max_size=60)


def filtered(*chunks: bytes) -> str:
    terminal = TerminalFilter()
    return (b"".join(terminal.feed(chunk) for chunk in chunks) + terminal.finish()).decode()


def is_harmless(text: str) -> bool:
    return all(character.isprintable() or character in "\n\r\t" for character in text)


@given(HOSTILE)
def test_nothing_but_colours_and_line_ends_gets_through(text: str) -> None:
    assert is_harmless(COLOUR.sub("", filtered(text.encode())))


@given(st.binary(max_size=60))
def test_bytes_that_are_no_text_get_through_harmless(data: bytes) -> None:
    shown = COLOUR.sub("", filtered(data))
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", shown)


@given(HOSTILE, st.data())
def test_where_the_output_is_cut_makes_no_difference(text: str, data: st.DataObject) -> None:
    whole = text.encode()
    cut = data.draw(st.integers(0, len(whole)))
    assert filtered(whole[:cut], whole[cut:]) == filtered(whole)


@given(HOSTILE)
def test_our_own_messages_carry_no_control_character_at_all(text: str) -> None:
    assert is_harmless(neutralise(text))
    assert "\r" not in neutralise(text)


@pytest.mark.parametrize(
    ("sequence", "shown"),
    [
        (b"\x1b]0;title\x07", "^[]0;title^G"),
        (b"\x1b]52;c;cm0gLXJm\x07", "^[]52;c;cm0gLXJm^G"),
        (b"\x1b[2J\x1b[H", "^[[2J^[[H"),
        (b"\x1b[6n", "^[[6n"),
        (b"\x1bP+q544e\x1b\\", "^[P+q544e^[\\"),
        ("\x9b2J".encode(), "\\x9b2J"),
        (b"a\x08b\x7f", "a^Hb^?"),
        ("admin\u202e\u2066// begin\u2069 \u2066".encode(), "admin\\u202e\\u2066// begin\\u2069 \\u2066"),
        (b"\x1b[31" + b"1" * 100 + b"m", "^[[31" + "1" * 100 + "m"),
    ],
)
def test_a_dangerous_sequence_becomes_visible_text(sequence: bytes, shown: str) -> None:
    assert filtered(sequence) == shown + "\n"


def test_a_program_overwrites_its_own_line_and_none_of_ours() -> None:
    assert filtered(b" 50 %\r100 %\n") == " 50 %\r100 %\n"
    assert filtered(b"100 %\r") == "100 %\r\n"
    assert neutralise("hood: no file x\rhood: done") == "hood: no file x^Mhood: done"


def test_colours_are_passed_on_and_ended() -> None:
    assert filtered(b"\x1b[1;31mred\n") == "\x1b[1;31mred\n\x1b[0m"
    assert filtered(b"\x1b[31mred\x1b[0m\n") == "\x1b[31mred\x1b[0m\n"


def test_an_unfinished_line_is_ended() -> None:
    assert filtered(b"no line end") == "no line end\n"
    assert filtered(b"with\n", b"\x1b[m") == "with\n\x1b[m"
    assert filtered() == ""
