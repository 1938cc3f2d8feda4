"""What a server is told once, for all of its clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fumehood.policy import Policy
from fumehood.policy.quantities import MIB

MOST_MESSAGE_BYTES = 8 * MIB
"""Of one message from a client, on whichever way it comes."""


def _say_nothing(text: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Settings:
    policy: Policy = field(default_factory=Policy)
    asks_client: bool = True
    """Approvals are asked for through the client, where it can. Otherwise `hood approvals` alone can answer."""
    most_clients: int = 16
    idle_seconds: float = 600.0
    """A client over HTTP that has no request under way for so long is taken for gone."""
    report: Callable[[str], None] = _say_nothing
    """For whoever runs the server; may be called from any thread."""
