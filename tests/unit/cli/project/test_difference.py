"""What a person is shown of a change."""

from __future__ import annotations

from fumehood.cli.project.difference import Differences
from fumehood.policy import format_size


def shown(before: bytes | None, after: bytes) -> list[str]:
    return [text for text, _ in Differences().lines(before, after)]


def test_changed_lines_are_shown_with_what_is_around_them() -> None:
    before = b"".join(b"%d\n" % number for number in range(1, 100_001))
    after = before.replace(b"\n50000\n", b"\nnew\n")
    assert shown(before, after) == [
        *("@@ line 49997 @@", " 49997", " 49998", " 49999", "-50000", "+new", " 50001", " 50002", " 50003")
    ]


def test_a_new_file_is_shown_in_full() -> None:
    assert shown(None, b"a\nb") == ["@@ line 1 @@", "+a", "+b (no line end)"]


def test_nothing_that_a_terminal_obeys_is_shown() -> None:
    text = "\x1b[2Jx\ry\u202ez\tt\u200b\x9b1m"
    (line,) = [line for line in shown(b"", f"{text}\n".encode()) if line.startswith("+")]
    assert line == "+⟨U+001B⟩[2Jx⟨U+000D⟩y⟨U+202E⟩z→   t⟨U+200B⟩⟨U+009B⟩1m"


def test_what_is_not_text_is_shown_by_its_size() -> None:
    assert shown(b"\0", b"\xff\xfe") == [f" (not text: {format_size(1)} before, {format_size(2)} now)"]


def test_comparing_is_bounded() -> None:
    """Lines that occur often, in another order: what takes a comparison longest."""
    one, other = b"a\nb\n" * 100_000, b"b\na\n" * 100_000
    assert "too many lines to show" in shown(one, other)[0]
    differences = Differences()
    pictures = [[*differences.lines(b"a\nb\n" * 400, b"b\na\n" * 400)] for _ in range(30)]
    assert "too many lines" in pictures[-1][0][0]


def test_what_is_shown_is_bounded_in_characters_too() -> None:
    """Few lines can be long enough to push everything else off the screen."""
    assert shown(None, b"x" * 300_000) == [f" (lines that are too long to show: {format_size(300_000)} now)"]
    differences = Differences()
    pictures = [[*differences.lines(None, b"x" * 200_000)] for _ in range(30)]
    assert "too long to show" in pictures[-1][0][0]
