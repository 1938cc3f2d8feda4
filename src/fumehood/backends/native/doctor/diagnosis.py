"""The words of a diagnosis: plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Condition(StrEnum):
    WORKS = "works"
    WEAKER = "weaker"
    """Sandboxes open, with less than the best; a policy with `strict: true` may refuse."""
    MISSING = "missing"
    """Sandboxes cannot open without it."""
    UNUSED = "unused"
    """Not needed here, or something else does its work."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """Why something does not work, and the commands of which each one mends it."""

    reason: str
    fixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """One mechanism. Each of `fixes` is a command that mends it by itself."""

    name: str
    condition: Condition
    purpose: str
    detail: str = ""
    fixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    system: str
    user: str
    checks: tuple[Check, ...]
