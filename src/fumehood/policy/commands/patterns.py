"""Patterns with `*`: whether a text matches one, and whether a word that is not known in full may do so.

Each pattern is a row of places, and what was reached of it a number with a bit for each: one walk over the word
decides, however many values its variables may have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce

from fumehood.policy.commands.syntax import Hole, Piece, Word

_ANYTHING = "**"


def matches(pattern: str, text: str) -> bool:
    """`*` stands for any characters. Each part where it is found first: nothing has to be tried twice."""
    first, *parts = pattern.split("*")
    if not parts:
        return pattern == text
    at = len(first) if text.startswith(first) else -1
    for part in parts[:-1]:
        found = text.find(part, at) if at >= 0 else -1
        at = found + len(part) if found >= 0 else -1
    return at >= 0 and len(text) - at >= len(parts[-1]) and text.endswith(parts[-1])


def possibly(word: Word, pattern: str) -> bool:
    """Whether the word could be one that matches: two patterns, of which each may have holes."""
    row = _row(pattern)
    reached = row.begin
    for piece in word.pieces:
        reached = row.through_anything(reached) if isinstance(piece, Hole) else row.through(reached, piece)
    return bool(reached & row.end)


def possibly_named(word: Word, name: str) -> bool:
    """Whether the word could be a path whose last part matches; what the line itself says of its variables counts."""
    pattern = f"*/{name}"
    reached = _through(pattern, _row(pattern).begin, "/")
    for choices in _choices(word.pieces):
        reached = reduce(int.__or__, [_through(pattern, reached, choice) for choice in choices])
    return bool(reached & _row(pattern).end)


def _choices(pieces: Sequence[Piece]) -> Iterator[tuple[str, ...]]:
    """Texts with `*` for what a glob finds, in one folder, and `**` for anything."""
    for number, piece in enumerate(pieces):
        if isinstance(piece, str):
            yield (piece,)
        elif piece.choices:
            yield (*piece.choices, "")
        else:
            # Two stars together may find files in other folders.
            beside = (*pieces[max(number - 1, 0) : number], *pieces[number + 1 : number + 2])
            is_one = piece.is_glob and not any(isinstance(other, Hole) and other.is_glob for other in beside)
            yield ("*" if is_one else _ANYTHING,)


@dataclass(frozen=True)
class _Row:
    places: dict[str, int]
    """Where in the pattern each character stands."""
    stars: int
    end: int

    @property
    def begin(self) -> int:
        return 1 | (1 & self.stars) << 1

    def through(self, reached: int, text: str) -> int:
        for char in text:
            if not reached:
                break
            reached = (reached & self.places.get(char, 0)) << 1 | reached & self.stars
            reached |= (reached & self.stars) << 1
        return reached

    def through_anything(self, reached: int) -> int:
        lowest = reached & -reached
        return (self.end << 1) - lowest if reached else 0

    def through_name(self, reached: int) -> int:
        """Anything that has no slash."""
        passable, before = (self.end - 1) & ~self.places.get("/", 0), 0
        while before != reached:
            before, reached = reached, reached | (reached & passable) << 1
        return reached


@lru_cache(maxsize=1024)
def _row(pattern: str) -> _Row:
    places, stars, text = dict[str, int](), 0, re.sub(r"\*+", "*", pattern)
    for number, char in enumerate(text):
        if char == "*":
            stars |= 1 << number
        else:
            places[char] = places.get(char, 0) | 1 << number
    return _Row(places, stars, 1 << len(text))


@lru_cache(maxsize=4096)
def _through(pattern: str, reached: int, text: str) -> int:
    """Kept, since a line may use a long value often."""
    row = _row(pattern)
    for part in re.split(r"(\*+)", text):
        if part.startswith("*"):
            reached = row.through_name(reached) if part == "*" else row.through_anything(reached)
        else:
            reached = row.through(reached, part)
    return reached
