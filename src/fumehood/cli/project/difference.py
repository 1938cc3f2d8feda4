"""What a program changed, for a person to read before it is written back: a text diff that is harmless to show.

Both texts may be hostile: how much is compared is bounded, because comparing takes longer than reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import takewhile

from fumehood.characters import TAB, one_line
from fumehood.cli.output import GREEN, RED
from fumehood.policy import format_size

CYAN = "36"
_CONTEXT_LINES = 3
# What is compared line by line, of one file and of all together: beyond, only sizes are shown.
_MOST_LINES = 1000
_MOST_LINES_OF_ALL = 10_000
_MOST_CHARACTERS = 256 * 1024
_MOST_CHARACTERS_OF_ALL = 2 * 1024 * 1024
_MOST_TEXT_BYTES = 4 * 1024 * 1024

Shown = tuple[str, str]
"""A line, and its colour."""


class Differences:
    """Shows one file after another, as long as its budget lasts."""

    def __init__(self) -> None:
        self._left, self._left_characters = _MOST_LINES_OF_ALL, _MOST_CHARACTERS_OF_ALL

    def lines(self, before: bytes | None, after: bytes) -> Iterator[Shown]:
        old, new = _text_of(before or b""), _text_of(after)
        if old is None or new is None:
            yield _sizes(before, after, "not text")
            return
        # What both begin and end with is not compared.
        head = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
        pairs = zip(reversed(old[head:]), reversed(new[head:]), strict=False)
        tail = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        start = max(0, head - _CONTEXT_LINES)
        ends = [len(lines) - max(0, tail - _CONTEXT_LINES) for lines in (old, new)]
        size = max(ends) - start
        if size > min(_MOST_LINES, self._left):
            yield _sizes(before, after, "too many lines to show")
            return
        shown = old[start : ends[0]], new[start : ends[1]]
        characters = sum(len(line) for lines in shown for line in lines)
        if characters > min(_MOST_CHARACTERS, self._left_characters):
            yield _sizes(before, after, "lines that are too long to show")
            return
        self._left, self._left_characters = self._left - size, self._left_characters - characters
        yield from _hunks(*shown, start)


def _hunks(old: list[str], new: list[str], start: int) -> Iterator[Shown]:
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(_CONTEXT_LINES):
        yield f"@@ line {start + group[0][3] + 1} @@", CYAN
        for kind, old_first, old_end, new_first, new_end in group:
            if kind == "equal":
                yield from ((f" {_harmless(line)}", "") for line in old[old_first:old_end])
                continue
            yield from ((f"-{_harmless(line)}", RED) for line in old[old_first:old_end])
            yield from ((f"+{_harmless(line)}", GREEN) for line in new[new_first:new_end])


def _harmless(line: str) -> str:
    """As an approver sees it: no two lines look the same, and a terminal obeys none."""
    return TAB.join(map(one_line, line.split("\t")))


def _text_of(content: bytes) -> list[str] | None:
    if len(content) > _MOST_TEXT_BYTES or b"\0" in content:
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    lines = text.split("\n")
    return lines[:-1] if not lines[-1] else [*lines[:-1], f"{lines[-1]} (no line end)"]


def _sizes(before: bytes | None, after: bytes, why: str) -> Shown:
    was = "" if before is None else f"{format_size(len(before))} before, "
    return f" ({why}: {was}{format_size(len(after))} now)", ""
