"""Where a policy came from, and the mistakes found in it so far.

Owns how a mistake is written down: `file:line: key: message`. Knows neither YAML nor the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Path = tuple[str | int, ...]
MAX_SHOWN = 60


@dataclass(frozen=True)
class PolicyProblem:
    """One mistake: at which key, and what is wrong with it."""

    path: Path
    message: str
    line: int | None = None


class UnreadableError(Exception):
    """The text is not a policy at all, so that no further mistake in it can be named."""

    def __init__(self, message: str, line: int, path: Path = ()) -> None:
        super().__init__(message)
        self.problem = PolicyProblem(path, message, line)


@dataclass(frozen=True)
class PolicySource:
    """The text behind a policy: its name, the line of each key, and the folder that relative paths start from."""

    name: str | None = None
    base: str | None = None
    lines: Mapping[Path, int] = field(default_factory=dict[Path, int])
    problems: tuple[PolicyProblem, ...] = ()

    def report(self, problems: list[PolicyProblem]) -> list[str]:
        """All mistakes in the order of the file. One key, one mistake: a consequence of another is left out."""
        broken = {problem.path for problem in self.problems}
        fresh = [problem for problem in problems if not any(p in broken for p in _prefixes(problem.path))]
        return [self._write(problem) for problem in sorted([*self.problems, *fresh], key=self._line)]

    def _line(self, problem: PolicyProblem) -> int:
        if problem.line is not None:
            return problem.line
        return next((self.lines[path] for path in _prefixes(problem.path) if path in self.lines), 1)

    def _write(self, problem: PolicyProblem) -> str:
        place = f"{visible(self.name)}:{self._line(problem)}: " if self.name is not None else ""
        key = f"{dotted(problem.path)}: " if problem.path else ""
        return f"{place}{key}{problem.message}"


def dotted(path: Path) -> str:
    """The key as people write it: `filesystem.mounts[0].source`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{visible(part[:MAX_SHOWN])}" for part in path)
    return "".join(parts).removeprefix(".")


def visible(text: str) -> str:
    """A name from outside, safe to print on one line."""
    return text if text.isprintable() else ascii(text)


def shown(value: object) -> str:
    """A value in an error: on one line, and no longer than helps."""
    if isinstance(value, int) and abs(value) >= 10**MAX_SHOWN:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    if not text.isprintable():
        text = ascii(value)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def _prefixes(path: Path) -> list[Path]:
    """The path and its parents, nearest first."""
    return [path[:length] for length in range(len(path), -1, -1)]
