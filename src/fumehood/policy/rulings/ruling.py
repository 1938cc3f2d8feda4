"""The answer to one attempt."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ruling:
    """`rule` is the key of the policy that decided; empty when no key does, because every sandbox is like that."""

    attempt: str
    allowed: bool
    why: str
    rule: str = ""
    remedy: str = ""
    """The smallest change of the policy that would allow it; empty when none would, or it is allowed."""

    @property
    def verdict(self) -> str:
        return "allow" if self.allowed else "deny"
