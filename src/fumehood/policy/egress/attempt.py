"""Attempts of a program to send something out, and the records of how they were decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fumehood.policy.decision import Decision
from fumehood.policy.hosts import endpoint
from fumehood.results import Denial

EgressKind = Literal["dns", "connect", "tls", "http", "udp", "icmp"]
_MOST_SHOWN = 200
# Longer than any reason of ours, lists of ports included; what a program chose in it is shortened where it is put in.
_MOST_REASON_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Attempt:
    """One name looked up, connection made, handshake begun or request sent, as the program chose it."""

    kind: EgressKind
    host: str
    port: int = 0
    method: str = ""
    path: str = ""
    secure: bool = False
    websocket: bool = False

    def __str__(self) -> str:
        place = endpoint(self.host, self.port) if self.port else self.host
        if self.kind != "http":
            return shown(f"{self.kind} {place}")
        if not self.method:
            return shown(f"a request to {place}")
        # A target that is not a path begins with something else, and must not look like a part of the place.
        path = self.path if self.path.startswith("/") else f" {self.path}"
        scheme = f"{'ws' if self.websocket else 'http'}{'s' if self.secure else ''}"
        return shown(f"{self.method} {scheme}://{place}{path}")


@dataclass(frozen=True, slots=True)
class AllowedAttempt:
    """The record of attempts that were allowed: by which rule and how often."""

    kind: str
    what: str
    rule: str
    count: int = 1


def to_allowed(decision: Decision[Attempt]) -> AllowedAttempt:
    """The record of an attempt that was allowed."""
    return AllowedAttempt(decision.attempt.kind, str(decision.attempt), decision.rule)


def to_denial(decision: Decision[Attempt]) -> Denial:
    """The record of an attempt that was denied."""
    attempt = decision.attempt
    return Denial(
        kind=attempt.kind,
        what=str(attempt),
        why=shown(decision.reason, _MOST_REASON_CHARACTERS),
        rule=decision.rule,
        remedy=decision.fix if shown(decision.fix, _MOST_REASON_CHARACTERS) == decision.fix else "",
        host=shown(attempt.host),
        port=attempt.port,
        method=shown(attempt.method),
        path=shown(attempt.path),
        secure=attempt.secure,
        websocket=attempt.websocket,
    )


def shown(text: str, most: int = _MOST_SHOWN) -> str:
    """Text that a program chose, safe to print: nothing invisible, and not too long."""
    safe = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text[:most])
    return safe + "..." if len(text) > most else safe
