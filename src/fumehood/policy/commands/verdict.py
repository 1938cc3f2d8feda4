"""What the judgement of a command line says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """One part of a line that is not allowed."""

    start: int
    end: int
    """Where in the line, in characters."""
    part: str
    """The text that stands there."""
    why: str
    rule: str | None
    """The rule that decided; None when it was the lack of one, or when the part cannot be judged at all."""
    remedy: str
    """The smallest change that would allow it."""

    def __str__(self) -> str:
        return f"{shortened(self.part)}: {self.why}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Allowed when nothing was refused."""

    refusals: tuple[Refusal, ...] = ()

    @property
    def allowed(self) -> bool:
        return not self.refusals

    def __str__(self) -> str:
        return "\n".join(map(str, self.refusals)) or "allowed"


class RefusedError(Exception):
    """Found while reading or judging; bytes of the source, turned into a `Refusal` at the end."""

    def __init__(self, start: int, end: int, why: str, remedy: str, rule: str | None = None) -> None:
        super().__init__(why)
        self.start, self.end, self.why, self.remedy, self.rule = start, end, why, remedy, rule


def shortened(text: str, most: int = 80) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."
