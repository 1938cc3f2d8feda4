"""What somebody tried, and what the rules say to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fumehood.policy.hosts import endpoint
from fumehood.results import Denial

Kind = Literal["dns", "connect", "tls", "http", "udp", "icmp"]
_MOST_SHOWN = 200
# Longer than any reason of ours, lists of ports included; what a program chose in it is shortened where it is put in.
_MOST_WORDS = 2000


@dataclass(frozen=True, slots=True)
class Attempt:
    """One name looked up, connection made, handshake begun or request sent, as the program chose it."""

    kind: Kind
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
        # A target that is no path begins with something else, and is not to look like a part of the place.
        path = self.path if self.path.startswith("/") else f" {self.path}"
        scheme = f"{'ws' if self.websocket else 'http'}{'s' if self.secure else ''}"
        return shown(f"{self.method} {scheme}://{place}{path}")


@dataclass(frozen=True, slots=True)
class Passage:
    """Something that was let through, by which rule and how often."""

    kind: str
    what: str
    rule: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Decision:
    """Allowed when nothing speaks against it. `rule` is the key of the rule that decided, empty when none covers it."""

    attempt: Attempt
    rule: str = ""
    why: str = ""
    remedy: str = ""

    @property
    def allowed(self) -> bool:
        return not self.why

    def passage(self) -> Passage:
        """The record of what was allowed."""
        return Passage(self.attempt.kind, str(self.attempt), self.rule)

    def denial(self) -> Denial:
        """The record of a refusal."""
        attempt = self.attempt
        return Denial(
            kind=attempt.kind,
            what=str(attempt),
            why=shown(self.why, _MOST_WORDS),
            rule=self.rule,
            remedy=self.remedy if shown(self.remedy, _MOST_WORDS) == self.remedy else "",
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
