"""What a runtime has room for. There is no "unlimited": whatever an agent does, something is full at some point."""

from __future__ import annotations

from dataclasses import dataclass, fields

from fumehood.errors import UsageError
from fumehood.keywords import known_fields
from fumehood.policy import read_seconds

_MIB = 1024 * 1024


@known_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    message_bytes: int = _MIB
    """Of one message, as JSON."""
    deadline_seconds: float = 300.0
    """How long a message may take if nobody says; waiting in a queue counts."""
    hops: int = 32
    """How often a message may lead to another one."""
    queue_messages: int = 1000
    """Waiting for one agent. When it is full, senders wait; handlers of agents may fill it to twice that."""
    queue_bytes: int = 16 * _MIB
    questions: int = 100
    """That one agent handles while it waits for those who ask them."""
    handlers: int = 100
    """At work at the same time in the whole runtime. One that waits for another agent's answer is not at work."""
    agents: int = 10_000
    """That exist at the same time."""
    subscriptions: int = 1000
    """That agents made for themselves, all together."""
    dead_letters: int = 1000
    dead_letter_bytes: int = 16 * _MIB
    stop_seconds: float = 10.0
    """What agents have for their `on_stop`, all together."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value: float | str = getattr(self, each.name)
            if isinstance(value, str) and each.name.endswith("_seconds"):
                value = read_seconds(value, f"Limits.{each.name}")
                object.__setattr__(self, each.name, value)
            if isinstance(value, str | bool):
                raise UsageError(f"Limits.{each.name} must be a number; this is {value!r}")
            if not 0 < value < float("inf"):
                raise UsageError(f"Limits.{each.name} must be more than 0 and less than infinity; this is {value!r}")
