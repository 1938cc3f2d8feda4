"""The wire format: an envelope with a message and its addresses, and the envelope of the reply.

Only ids, text and numbers, so that an envelope read from bytes equals the one that was written. As bytes it is a line
of JSON followed by the message as it was encoded: JSON inside JSON would be longer, and a different text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from fumehood.errors import (
    AgentFailedError,
    AgentLostError,
    AuditError,
    DeadlineError,
    DeliveryError,
    FumehoodError,
    LoopError,
    MessageError,
    OverloadedError,
    RefusedError,
    StoppedError,
    UsageError,
)
from fumehood.runtime.identity import AgentId, TopicId
from fumehood.runtime.messages import Payload

_VERSION = 3
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FAILURES: dict[str, type[FumehoodError]] = {
    "failed": AgentFailedError,
    "audit": AuditError,
    "deadline": DeadlineError,
    "loop": LoopError,
    "lost": AgentLostError,
    "message": MessageError,
    "overloaded": OverloadedError,
    "refused": RefusedError,
    "stopped": StoppedError,
}
_KINDS = {error: kind for kind, error in _FAILURES.items()}


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message for one agent. A publication becomes one envelope for each recipient, all with the same id."""

    message_id: str
    payload: Payload
    sender: AgentId | None
    """None is the application."""
    to: AgentId
    topic: TopicId | None
    """None is a direct message, which is answered."""
    cause: str | None
    """The message that the sender was handling."""
    hops: int
    deadline: float
    """The deadline on this machine's monotonic clock."""
    chain: tuple[str, ...] = ()
    """The handlers that wait for the answer to this message, directly or through others: see `chain_link`."""

    def to_bytes(self, now: float, wall: float) -> bytes:
        """`now` is on this machine's monotonic clock, `wall` on the clock that machines share."""
        seconds = self.deadline - now
        fields = {
            "v": _VERSION,
            "id": self.message_id,
            "name": self.payload.name,
            "from": self.sender and str(self.sender),
            "to": str(self.to),
            "topic": self.topic and str(self.topic),
            "cause": self.cause,
            "hops": self.hops,
            "seconds": seconds,
            "until": wall + seconds,
            "chain": self.chain,
        }
        return _written(fields, self.payload.data)

    @classmethod
    def from_bytes(cls, data: bytes, now: float, wall: float) -> Envelope:
        """MessageError if it is not valid. Time in transit counts, as far as the clocks of both machines agree."""
        fields, body = _read(data)
        match fields:
            case {
                "id": str(message_id),
                "name": str(name),
                "from": str() | None as sender,
                "to": str(to),
                "topic": str() | None as topic,
                "cause": str() | None as cause,
                "hops": int(hops),
                "seconds": int() | float() as seconds,
                "until": int() | float() as until,
                "chain": chain,
            }:
                try:
                    return cls(
                        message_id=_identifier(message_id),
                        payload=Payload(name, body),
                        sender=None if sender is None else AgentId.parse(sender),
                        to=AgentId.parse(to),
                        topic=None if topic is None else TopicId.parse(topic),
                        cause=cause,
                        hops=hops,
                        deadline=now + min(_finite(seconds), _finite(until) - wall),
                        chain=_texts(chain),
                    )
                except UsageError as error:
                    raise MessageError(f"an envelope is not valid: {error}") from None
            case _:
                raise MessageError("an envelope is not valid: fields are missing or have another type")


@dataclass(frozen=True, slots=True)
class ReplyFailure:
    """Why a message has no answer, as it crosses the wire."""

    kind: str
    text: str

    @classmethod
    def of(cls, error: FumehoodError) -> ReplyFailure:
        """The kind of the nearest base class that has one."""
        return cls(next((_KINDS[each] for each in type(error).__mro__ if each in _KINDS), "failed"), str(error))

    def as_error(self) -> FumehoodError:
        return _FAILURES.get(self.kind, DeliveryError)(self.text)


@dataclass(frozen=True, slots=True)
class ReplyEnvelope:
    """The reply to the message with that id by its recipient: a message, nothing, or a failure."""

    message_id: str
    by: AgentId
    payload: Payload | None = None
    failure: ReplyFailure | None = None

    def to_bytes(self) -> bytes:
        fields = {
            "v": _VERSION,
            "id": self.message_id,
            "by": str(self.by),
            "name": self.payload and self.payload.name,
            "failure": self.failure and [self.failure.kind, self.failure.text],
        }
        return _written(fields, self.payload.data if self.payload else b"")

    @classmethod
    def from_bytes(cls, data: bytes) -> ReplyEnvelope:
        fields, body = _read(data)
        match fields:
            case {"id": str(message_id), "by": str(by), "name": None, "failure": None}:
                return cls(_identifier(message_id), _agent(by))
            case {"id": str(message_id), "by": str(by), "name": str(name), "failure": None}:
                return cls(_identifier(message_id), _agent(by), Payload(name, body))
            case {"id": str(message_id), "by": str(by), "failure": [str(kind), str(text)]}:
                return cls(_identifier(message_id), _agent(by), failure=ReplyFailure(kind, text))
            case _:
                raise MessageError("an answer is not valid: fields are missing or have another type")


def chain_link(message_id: str, agent: AgentId) -> str:
    """The name of one handler at work: a publication has the same id for each of its recipients."""
    return f"{message_id} {agent}"


def _identifier(text: str) -> str:
    """It becomes a level of a subject, a key, and a word in records."""
    if not _ID.fullmatch(text):
        raise MessageError("an envelope is not valid: its id is made of at most 64 letters, digits, _ and -")
    return text


def _texts(values: object) -> tuple[str, ...]:
    found = cast("list[object]", values) if isinstance(values, list) else [None]
    if not all(isinstance(value, str) for value in found):
        raise MessageError("an envelope is not valid: its chain is not a list of texts")
    return tuple(cast("list[str]", found))


def _finite(number: float) -> float:
    """JSON has no NaN and no infinity, but Python reads them, and 1e999 as one of them."""
    try:
        if math.isfinite(number):
            return float(number)
    except OverflowError:  # an integer that is larger than any float
        pass
    raise MessageError("an envelope is not valid: a time is not a finite number")


def _agent(text: str) -> AgentId:
    try:
        return AgentId.parse(text)
    except UsageError as error:
        raise MessageError(f"an answer is not valid: {error}") from None


def _written(fields: Mapping[str, object], body: bytes) -> bytes:
    return json.dumps(fields).encode("ascii") + b"\n" + body


def _read(data: bytes) -> tuple[dict[str, Any], bytes]:
    head, _, body = data.partition(b"\n")
    try:
        found: object = json.loads(head)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"the envelope is not valid JSON: {error}") from None
    fields = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if fields.get("v") != _VERSION:
        raise MessageError(f"the envelope has version {fields.get('v')!r}, and only {_VERSION} is supported")
    return fields, body
