"""Where the application has a say in every message: it may look, change, drop or refuse it.

After the grants were judged and before the message is recorded. What an interceptor makes of a message is checked as
any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Protocol

from fumehood.errors import MessageError, RefusedError
from fumehood.runtime.identity import AgentId, TopicId
from fumehood.runtime.messages import Catalogue, Payload


class Dropped(Enum):
    DROPPED = "dropped"


DROP = Dropped.DROPPED
"""What an interceptor returns for a message that goes no further. Who waits for an answer is told so."""


class Stage(StrEnum):
    SEND = "send"
    PUBLISH = "publish"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class Passage:
    stage: Stage
    message_id: str
    """Of an answer: the one that it answers."""
    sender: AgentId | None
    target: AgentId | TopicId | None
    """None is the application."""


class Interceptor(Protocol):
    async def intercept(self, message: object, passage: Passage) -> object:
        """The message, another one, or DROP; RefusedError with a reason for the sender. Any other error refuses too."""
        ...


class DroppedError(RefusedError):
    """An interceptor let it go no further, and gave no reason."""


class Interceptors:
    """One after the other, each with what the one before has made of it. What goes wrong in one refuses the message."""

    def __init__(self, interceptors: Sequence[Interceptor], catalogue: Catalogue) -> None:
        self._interceptors, self._catalogue = tuple(interceptors), catalogue

    async def apply(self, payload: Payload, passage: Passage) -> Payload:
        for interceptor in self._interceptors:
            payload = await self._one(interceptor, payload, passage)
        return payload

    async def _one(self, interceptor: Interceptor, payload: Payload, passage: Passage) -> Payload:
        name = type(interceptor).__name__
        try:
            made = await interceptor.intercept(self._catalogue.decode(payload), passage)
        except RefusedError:
            raise
        except Exception as error:
            raise RefusedError(f"the interceptor {name} failed with {type(error).__name__}") from error
        if made is DROP:
            raise DroppedError(f"the interceptor {name} dropped it")
        try:
            return self._catalogue.encode(made)
        except MessageError as error:
            raise RefusedError(f"what the interceptor {name} made of it is no message: {error}") from None
