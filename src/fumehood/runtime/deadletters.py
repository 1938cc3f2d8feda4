"""Messages that did not arrive, or that nobody could deal with: the newest are kept for people to look at."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from fumehood.runtime.identity import AgentId, TopicId
from fumehood.runtime.messages import Payload


class Reason(StrEnum):
    INVALID = "invalid"
    """Of an unknown type, not what its type says, too large, or an answer of that kind."""
    UNHANDLED = "unhandled"
    """There is no such agent, or it has no handler for this."""
    REFUSED = "refused"
    """By an interceptor or a handler."""
    DROPPED = "dropped"
    """By an interceptor."""
    EXPIRED = "expired"
    """Its deadline passed before or while it was handled."""
    LATE = "late"
    """An answer after the deadline."""
    UNASKED = "unasked"
    """An answer that nobody waits for: a second one, one by somebody else, or one to a message that never was."""
    OVERLOADED = "overloaded"
    LOOPING = "looping"
    FAILED = "failed"
    """The agent could not be made, or its handler raised an error."""
    CANCELLED = "cancelled"
    """Whoever sent it does not wait for it any more."""
    STOPPED = "stopped"
    UNRECORDED = "unrecorded"
    """The audit log could not be written."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    message_id: str
    name: str
    """Of the message's type."""
    payload: Payload | None
    """None if it could not be written as one."""
    sender: AgentId | None
    target: AgentId | TopicId
    reason: Reason
    detail: str
    """In full, for people: what other agents are told says less."""


class DeadLetters:
    """Iterate over it: oldest first. `total` counts those that had to make room, too."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._letters: deque[DeadLetter] = deque()
        self._bytes = 0
        self.total = 0

    def add(self, letter: DeadLetter) -> None:
        self.total += 1
        self._letters.append(letter)
        self._bytes += _size(letter)
        while len(self._letters) > self._most or self._bytes > self._most_bytes:
            self._bytes -= _size(self._letters.popleft())

    def take(self) -> list[DeadLetter]:
        """All of them; they are not here any more then."""
        letters = list(self._letters)
        self._letters.clear()
        self._bytes = 0
        return letters

    def __iter__(self) -> Iterator[DeadLetter]:
        return iter(tuple(self._letters))

    def __len__(self) -> int:
        return len(self._letters)


def _size(letter: DeadLetter) -> int:
    return len(letter.detail) + (len(letter.payload.data) if letter.payload else 0)
