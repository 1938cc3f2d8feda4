"""A script as data: its words, as far as they can be known by reading, its commands, and what else has effects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Hole:
    """A part of a word that only running tells."""

    is_many: bool = False
    """It may also become several words or none: $x without quotes, globs, braces, "$@"."""
    name: str | None = None
    """The variable whose value it is."""
    is_plain: bool = False
    """It is nothing at all, or one word that begins with a letter or a digit and names nothing hidden."""
    is_number: bool = False
    is_glob: bool = False
    """It names files that are there, and none that are hidden."""
    is_brace: bool = False
    """Each word that it makes begins as this one does."""
    is_home: bool = False
    """`~`: the home folder, whose name begins with a slash."""
    is_never_empty: bool = False
    choices: tuple[str, ...] = ()
    """What it may be, where the line itself says so, with * for what a glob finds."""
    trimmed: tuple[str, str] | None = None
    """For `${f%.txt}` the variable and the ending that its value loses."""

    @property
    def may_fall_apart(self) -> bool:
        return self.is_many and not (self.is_plain or self.is_number or self.is_glob or self.is_brace)


ONE, MANY, GLOB = Hole(), Hole(is_many=True), Hole(is_many=True, is_glob=True)
BRACE = Hole(is_many=True, is_brace=True)
PLAIN, HOME, NUMBER = Hole(is_plain=True), Hole(is_home=True), Hole(is_number=True)
COUNT = Hole(is_plain=True, is_number=True, is_never_empty=True)
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
    def holes(self) -> list[Hole]:
        return [piece for piece in self.pieces if isinstance(piece, Hole)]

    @property
    def is_many(self) -> bool:
        return any(hole.is_many for hole in self.holes)

    @property
    def may_fall_apart(self) -> bool:
        """Whether it may be split into words of which only the first begins as this one does."""
        return any(hole.may_fall_apart for hole in self.holes)

    @property
    def may_vanish(self) -> bool:
        """A plain word without quotes is none where it was not set, nor is a glob that finds nothing, with nullglob."""
        if any(hole.is_glob and hole.is_many for hole in self.holes):
            return True
        return all(isinstance(piece, Hole) and piece.is_many and piece.is_plain for piece in self.pieces)

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
        return self.may_begin_with("-")

    def may_begin_with(self, mark: str) -> bool:
        """It, or a word that it becomes."""
        if self.may_fall_apart:
            return True
        # A plain word may still be none: set in a part of the line that did not run.
        first = next((piece for piece in self.pieces if isinstance(piece, str) or not piece.is_plain), "")
        if isinstance(first, str):
            return first.startswith(mark)
        return mark == "/" if first.is_home else True

    @property
    def may_be_empty(self) -> bool:
        """A variable may be unset, and then the word, or what is left of it, is nothing."""
        return not any(piece if isinstance(piece, str) else piece.is_never_empty for piece in self.pieces)

    def may_be(self, mark: str) -> bool:
        """Whether it, or a word that it becomes, may turn out to be this mark, which has no letters."""
        if self.text is not None:
            return self.text == mark
        if self.may_fall_apart:
            return True
        if all(hole.is_plain or hole.is_number for hole in self.holes):
            return "".join(piece for piece in self.pieces if isinstance(piece, str)) == mark
        return mark.startswith(self.prefix) and mark.endswith(self.suffix)

    def replaced(self, marker: str) -> Word:
        """The word with an unknown value in place of the marker, which `find` and `xargs` replace."""
        pieces: list[Piece] = []
        for piece in self.pieces:
            parts = piece.split(marker) if isinstance(piece, str) else [piece]
            for number, part in enumerate(parts):
                pieces += ([ONE] if number else []) + ([part] if part else [])
        return replace(self, pieces=joined(pieces))


def joined(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Neighbouring texts as one; empty ones are left out, but a word of nothing is still a word."""
    found: list[Piece] = []
    run: list[str] = []
    for piece in (*pieces, ONE):
        if isinstance(piece, str):
            run.append(piece)
            continue
        if text := "".join(run):
            found.append(text)
        run = []
        found.append(piece)
    return tuple(found[:-1])


def known(text: str, start: int = 0, end: int = 0) -> Word:
    return Word(joined([text]), start, end, text)


def rest_of_line(word: Word) -> Word:
    """Whatever else may follow, as `xargs` appends it."""
    return Word((MANY,), word.start, word.end, "...")


@dataclass(frozen=True, slots=True)
class Assignment:
    name: str
    values: tuple[Word, ...]
    """None at all: the value comes from elsewhere."""
    start: int
    end: int
    is_whole: bool = True
    """Not one element alone: after `x[1]=a`, `$x` is what it was."""


@dataclass(frozen=True, slots=True)
class Redirection:
    operator: str
    descriptor: int
    target: Word | None
    """None for a here-document and for copies of descriptors."""
    start: int
    end: int
    copied: int | None = None
    """The descriptor that is copied."""


@dataclass(slots=True)
class SimpleCommand:
    """One simple command; without words it only assigns or redirects."""

    assignments: list[Assignment] = field(default_factory=list[Assignment])
    words: list[Word] = field(default_factory=list[Word])
    redirections: list[Redirection] = field(default_factory=list[Redirection])


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Text that the shell evaluates as numbers, which can run commands through the values of variables."""

    text: str
    start: int
    end: int


@dataclass(slots=True)
class ShellScript:
    is_bash: bool = True
    commands: list[SimpleCommand] = field(default_factory=list[SimpleCommand])
    assigned: list[Assignment] = field(default_factory=list[Assignment])
    """Variables that loops assign."""
    settled: list[tuple[str, int, float]] = field(default_factory=list[tuple[str, int, float]])
    """VariableTracker that surely have a value of this script, from one place in the source to another."""
    arithmetic: list[Arithmetic] = field(default_factory=list[Arithmetic])
