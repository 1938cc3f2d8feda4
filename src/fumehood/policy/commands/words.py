"""A word of a command as far as it can be known before the command runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property


class Hole(Enum):
    """A part of a word that only running tells."""

    ONE = "one"
    """Some text, as from "$x"."""
    MANY = "many"
    """Some text that may also become several words or none: $x without quotes, globs, braces, "$@"."""


Piece = str | Hole


@dataclass(frozen=True)
class Word:
    """`start` and `end` are where it stands in the source, in bytes; `raw` is what stands there."""

    pieces: tuple[Piece, ...]
    start: int
    end: int
    raw: str

    @cached_property
    def text(self) -> str | None:
        """What the program gets; None when that cannot be known."""
        return None if any(isinstance(piece, Hole) for piece in self.pieces) else "".join(map(str, self.pieces))

    @property
    def is_many(self) -> bool:
        return Hole.MANY in self.pieces

    @property
    def prefix(self) -> str:
        """How it certainly begins."""
        first = self.pieces[0] if self.pieces else ""
        return first if isinstance(first, str) else ""

    @property
    def suffix(self) -> str:
        """How it certainly ends."""
        last = self.pieces[-1] if self.pieces else ""
        return last if isinstance(last, str) else ""

    @property
    def may_be_option(self) -> bool:
        return self.prefix.startswith("-") or (self.prefix == "" and self.text is None)

    def replaced(self, marker: str) -> Word:
        """As it may be when something takes the marker's place in it, as `find` and `xargs` do."""
        pieces: list[Piece] = []
        for piece in self.pieces:
            parts = piece.split(marker) if isinstance(piece, str) else [piece]
            for number, part in enumerate(parts):
                pieces += ([Hole.ONE] if number else []) + ([part] if part else [])
        return Word(joined(pieces), self.start, self.end, self.raw)


def joined(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Neighbouring texts as one; empty ones are left out, but a word of nothing is still a word."""
    found: list[Piece] = []
    for piece in pieces:
        last = found[-1] if found else None
        if isinstance(piece, str) and isinstance(last, str):
            found[-1] = last + piece
        elif piece != "":
            found.append(piece)
    return tuple(found)


def known(text: str, start: int = 0, end: int = 0) -> Word:
    return Word(joined([text]), start, end, text)


def rest_of_line(word: Word) -> Word:
    """Whatever else may follow, as `xargs` appends it."""
    return Word((Hole.MANY,), word.start, word.end, "...")
