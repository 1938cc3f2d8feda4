"""The decision of a policy about one attempt: one type for connections, requests, files, commands and amounts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """`attempt` is what was decided about, in the type that the part of the policy uses for it."""

    attempt: T
    allowed: bool
    reason: str = ""
    rule: str = ""
    """The key of the rule that decided; empty when no rule covers the attempt, or every sandbox is like that."""
    fix: str = ""
    """The smallest change of the policy that would allow it; empty when none would, or it is allowed."""

    @property
    def verdict(self) -> Literal["allow", "deny"]:
        """The verdict, spelled like `expect` in the tests of a policy."""
        return "allow" if self.allowed else "deny"


def allow(attempt: T, rule: str = "") -> Decision[T]:
    return Decision(attempt, True, rule=rule)


def deny(attempt: T, reason: str, rule: str = "", fix: str = "") -> Decision[T]:
    return Decision(attempt, False, reason, rule, fix)
