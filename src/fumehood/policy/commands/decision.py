"""What the judgement of a command line returns: which parts of it are denied, and why."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood.policy.decision import Decision


@dataclass(frozen=True, slots=True)
class SourceSpan:
    """A part of a line."""

    start: int
    end: int
    """Where in the line, in characters."""
    text: str
    """What stands there; for a part of the text of `bash -c`, that part."""


@dataclass(frozen=True, slots=True)
class CommandDecision:
    """Allowed when no part is denied."""

    denied: tuple[Decision[SourceSpan], ...] = ()

    @property
    def allowed(self) -> bool:
        return not self.denied

    def __str__(self) -> str:
        return "\n".join(map(described, self.denied)) or "allowed"


class RefusalError(Exception):
    """A part of a line is denied; `start` and `end` are bytes of the source. Becomes a `Decision` in the checker."""

    def __init__(self, start: int, end: int, reason: str, fix: str, rule: str = "") -> None:
        super().__init__(reason)
        self.start, self.end, self.reason, self.fix, self.rule = start, end, reason, fix, rule


def described(decision: Decision[SourceSpan]) -> str:
    return f"{shortened(decision.attempt.text)}: {decision.reason}; {decision.fix}"


def shortened(text: str, most: int = 80) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."
