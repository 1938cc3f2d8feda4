"""Two texts, line by line: what was taken away, what came, and a little of what is around it. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from itertools import takewhile

from fumehood.frozen import frozen

_AROUND = 3
_MOST_COMPARED = 300
"""Lines between the first and the last difference; comparing more could take long."""


@frozen
class DiffLine:
    sign: str
    """`+`, `-`, a blank for what is in both, or `…` for what is left out."""
    text: str


def text_diff(before: str, after: str) -> list[DiffLine]:
    """Empty if they are the same."""
    if before == after:
        return []
    old, new = before.splitlines(), after.splitlines()
    head = _alike(old, new)
    tail = min(_alike(old[::-1], new[::-1]), len(old) - head, len(new) - head)
    found = [*_left_out(head - _AROUND), *(DiffLine(" ", line) for line in old[max(0, head - _AROUND) : head])]
    found += _between(old[head : len(old) - tail], new[head : len(new) - tail])
    found += [DiffLine(" ", line) for line in old[len(old) - tail :][:_AROUND]]
    return [*found, *_left_out(tail - _AROUND)]


def _alike(one: list[str], other: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _left_out(count: int) -> Iterator[DiffLine]:
    if count > 0:
        yield DiffLine("…", f"{count} {'line' if count == 1 else 'lines'} as before")


def _between(old: list[str], new: list[str]) -> Iterator[DiffLine]:
    if max(len(old), len(new)) > _MOST_COMPARED:
        yield from (DiffLine("-", line) for line in old)
        yield from (DiffLine("+", line) for line in new)
        return
    for what, old_start, old_end, new_start, new_end in difflib.SequenceMatcher(None, old, new).get_opcodes():
        if what == "equal":
            yield from (DiffLine(" ", line) for line in old[old_start:old_end])
            continue
        yield from (DiffLine("-", line) for line in old[old_start:old_end])
        yield from (DiffLine("+", line) for line in new[new_start:new_end])
