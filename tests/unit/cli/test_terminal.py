"""A terminal shows what a program says and obeys nothing of it but colours."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.characters import neutralise
from fumehood.cli.terminal import TerminalFilter

COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
HOSTILE = st.text(st.sampled_from("\x1b\x9b[]0;31mH\n\r\t\x07\x08\x00\x7f\x85aä€\u202a\u202e\u2066\u2069"), max_size=60)


# Marks of direction, spaces of no width, tags, annotations, line separators, private and unassigned characters.
UNSEEN = (0x200E, 0x200F, 0x061C, 0x200B, 0x2060, 0xFEFF, 0xAD, 0x180E, 0xE0041, 0xFFF9, 0x2028, 0x2029, 0xE000, 0x378)


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
        (b"\x1b]0;title\x07", "⟨U+001B⟩]0;title⟨U+0007⟩"),
        (b"\x1b]52;c;cm0gLXJm\x07", "⟨U+001B⟩]52;c;cm0gLXJm⟨U+0007⟩"),
        (b"\x1b[2J\x1b[H", "⟨U+001B⟩[2J⟨U+001B⟩[H"),
        (b"\x1b[6n", "⟨U+001B⟩[6n"),
        (b"\x1bP+q544e\x1b\\", "⟨U+001B⟩P+q544e⟨U+001B⟩\\"),
        ("\x9b2J".encode(), "⟨U+009B⟩2J"),
        (b"a\x08b\x7f", "a⟨U+0008⟩b⟨U+007F⟩"),
        ("admin\u202e\u2066// begin\u2069".encode(), "admin⟨U+202E⟩⟨U+2066⟩// begin⟨U+2069⟩"),
        (b"\x1b[31" + b"1" * 100 + b"m", "⟨U+001B⟩[31" + "1" * 100 + "m"),
        *((chr(code).encode(), f"⟨U+{code:04X}⟩") for code in UNSEEN),
    ],
)
def test_a_dangerous_sequence_becomes_visible_text(sequence: bytes, shown: str) -> None:
    assert filtered(sequence) == shown + "\n"


@pytest.mark.parametrize("code", UNSEEN)
def test_nobody_is_misled_by_what_is_in_our_own_messages(code: int) -> None:
    assert neutralise(f"a{chr(code)}b\n") == f"a⟨U+{code:04X}⟩b\n"


@pytest.mark.parametrize(
    "text",
    [
        "grüße 漢字 \u0928\u092e\u0938\u094d\u0924\u0947 e\u0301 €\u00a01 🎉",
        "👩\u200d🔬",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    ],
)
def test_writing_of_every_kind_gets_through(text: str) -> None:
    assert filtered(text.encode()) == text + "\n"


def test_a_program_goes_on_after_a_line_of_ours() -> None:
    terminal = TerminalFilter()
    assert terminal.feed(b"\x1b[8mhidden") + terminal.finish() == b"\x1b[8mhidden\x1b[0m\n"
    assert terminal.finish() == b""
    assert terminal.feed(b"more\n") + terminal.finish() == b"more\n"


def test_a_program_overwrites_its_own_line_and_none_of_ours() -> None:
    assert filtered(b" 50 %\r100 %\n") == " 50 %\r100 %\n"
    assert filtered(b"100 %\r") == "100 %\r\n"
    assert neutralise("hood: no file x\rhood: done") == "hood: no file x⟨U+000D⟩hood: done"


def test_colours_are_passed_on_and_ended() -> None:
    assert filtered(b"\x1b[1;31mred\n") == "\x1b[1;31mred\n\x1b[0m"
    assert filtered(b"\x1b[31mred\x1b[0m\n") == "\x1b[31mred\x1b[0m\n"


def test_an_unfinished_line_is_ended() -> None:
    assert filtered(b"no line end") == "no line end\n"
    assert filtered(b"with\n", b"\x1b[m") == "with\n\x1b[m"
    assert filtered() == ""
