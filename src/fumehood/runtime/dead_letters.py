"""Dead letters: the newest messages that could not be delivered or handled, kept for inspection and recorded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from fumehood.errors import (
    AgentLostError,
    AuditError,
    FumehoodError,
    LoopError,
    MessageError,
    OverloadedError,
    RefusedError,
)
from fumehood.runtime.audit import MessageDead, RuntimeAudit
from fumehood.runtime.envelopes import Envelope
from fumehood.runtime.identity import AgentId, TopicId
from fumehood.runtime.interceptors import DroppedError
from fumehood.runtime.messages import Payload


class Reason(StrEnum):
    INVALID = "invalid"
    """The message or the answer to it has an unknown type, does not validate, or is too large."""
    UNHANDLED = "unhandled"
    """The agent does not exist, or has no handler for this."""
    REFUSED = "refused"
    """An interceptor or a handler refused it."""
    DROPPED = "dropped"
    """An interceptor dropped it."""
    EXPIRED = "expired"
    """Its deadline passed before or while it was handled."""
    LATE = "late"
    """An answer after the deadline."""
    UNASKED = "unasked"
    """An answer without a pending request: a second one, one by another agent, or one to an unknown message."""
    OVERLOADED = "overloaded"
    LOOPING = "looping"
    FAILED = "failed"
    """The agent could not be made, or its handler raised an error."""
    LOST = "lost"
    """The process that was the agent's home, or the connection to it, was lost before there was an answer."""
    CANCELLED = "cancelled"
    """The sender has stopped waiting for it."""
    STOPPED = "stopped"
    UNRECORDED = "unrecorded"
    """The audit log could not be written."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    message_id: str
    name: str
    """The name of the message's type."""
    payload: Payload | None
    """None if it could not be written as one."""
    sender: AgentId | None
    target: AgentId | TopicId
    reason: Reason
    detail: str
    """The full reason, for people: the error that the sender gets contains less."""


class DeadLetters:
    """A bounded list; iterates oldest first. `total` also counts those that were dropped to make room."""

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
        """Returns all of them and removes them."""
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


_LONGEST_DETAIL = 2000


class DeadLetterRecorder:
    """Keeps a message that was not delivered, and writes the record of it."""

    def __init__(self, letters: DeadLetters, audit: RuntimeAudit) -> None:
        self.letters = letters
        self._audit = audit

    async def record(self, envelope: Envelope, reason: Reason, detail: str, error: str | None = None) -> None:
        target = envelope.to if envelope.topic is None else envelope.topic
        name, payload = envelope.payload.name, envelope.payload
        await self.record_unsent(
            envelope.message_id, name, payload, envelope.sender, target, reason, detail, error, envelope.to
        )

    async def record_unsent(
        self,
        message_id: str,
        name: str,
        payload: Payload | None,
        sender: AgentId | None,
        target: AgentId | TopicId,
        reason: Reason,
        detail: str,
        error: str | None = None,
        agent: AgentId | None = None,
    ) -> None:
        """Nothing is delivered after this: a log that cannot be written raises AuditError at the next message."""
        detail = detail[:_LONGEST_DETAIL]
        self.letters.add(DeadLetter(message_id, name, payload, sender, target, reason, detail))
        event = MessageDead(name, sender and str(sender), str(target), reason.value, error)
        with suppress(AuditError):
            await self._audit.record(event, message=message_id, **({"agent": str(agent)} if agent else {}))


def reason_of(error: FumehoodError) -> Reason:
    """The reason that this error stands for."""
    match error:
        case DroppedError():
            return Reason.DROPPED
        case RefusedError():
            return Reason.REFUSED
        case LoopError():
            return Reason.LOOPING
        case OverloadedError():
            return Reason.OVERLOADED
        case AgentLostError():
            return Reason.LOST
        case MessageError():
            return Reason.INVALID
        case _:
            return Reason.UNHANDLED
