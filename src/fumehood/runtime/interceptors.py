"""Interceptors: hooks of the application that see every message and may change, drop or refuse it.

They run after the grants were checked and before the message is recorded. What an interceptor returns is validated as
any other message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Protocol

from fumehood.errors import MessageError, RefusedError
from fumehood.runtime.identity import AgentId, TopicId
from fumehood.runtime.messages import MessageTypes, Payload


class Dropped(Enum):
    DROPPED = "dropped"


DROP = Dropped.DROPPED
"""Returned by an interceptor to drop a message; a sender that waits for an answer gets RefusedError."""


class Stage(StrEnum):
    SEND = "send"
    PUBLISH = "publish"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class MessageInfo:
    """What an interceptor knows of a message besides its content."""

    stage: Stage
    message_id: str
    """For an answer, the id of the message that it answers."""
    sender: AgentId | None
    target: AgentId | TopicId | None
    """None is the application."""


class Interceptor(Protocol):
    async def intercept(self, message: object, info: MessageInfo) -> object:
        """The message, another one, or DROP; RefusedError with a reason for the sender. Any other error refuses too."""
        ...


class DroppedError(RefusedError):
    """An interceptor dropped the message without a reason."""


class Interceptors:
    """The chain of interceptors: each gets the result of the one before. An error in one refuses the message."""

    def __init__(self, interceptors: Sequence[Interceptor], types: MessageTypes) -> None:
        self._interceptors, self._types = tuple(interceptors), types

    async def apply(self, payload: Payload, info: MessageInfo) -> Payload:
        for interceptor in self._interceptors:
            payload = await self._one(interceptor, payload, info)
        return payload

    async def _one(self, interceptor: Interceptor, payload: Payload, info: MessageInfo) -> Payload:
        name = type(interceptor).__name__
        try:
            made = await interceptor.intercept(self._types.decode(payload), info)
        except RefusedError:
            raise
        except Exception as error:
            raise RefusedError(f"the interceptor {name} failed with {type(error).__name__}") from error
        if made is DROP:
            raise DroppedError(f"the interceptor {name} dropped it")
        try:
            return self._types.encode(made)
        except MessageError as error:
            raise RefusedError(f"the interceptor {name} returned what is not a valid message: {error}") from None
