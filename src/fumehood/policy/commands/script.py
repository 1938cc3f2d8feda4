"""A shell script as the judgement needs it: every simple command, wherever it stands, and what else has effects."""

from __future__ import annotations

from dataclasses import dataclass, field

from fumehood.policy.commands.words import Word


@dataclass(frozen=True, slots=True)
class Assignment:
    name: str
    values: tuple[Word, ...]
    """None at all: the value comes from elsewhere."""
    start: int
    end: int


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
class Simple:
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
class Script:
    is_bash: bool = True
    commands: list[Simple] = field(default_factory=list[Simple])
    assigned: list[Assignment] = field(default_factory=list[Assignment])
    """By loops."""
    settled: list[tuple[str, int, float]] = field(default_factory=list[tuple[str, int, float]])
    """Names that surely have a value of this script, from one place in the source to another."""
    arithmetic: list[Arithmetic] = field(default_factory=list[Arithmetic])
