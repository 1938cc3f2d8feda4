"""What an agent needs of a model: a request in, pieces of an answer out, and failures by their kind."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pydantic import JsonValue

from fumehood.agents.messages import CallRequest, ChatMessage
from fumehood.tools.tool import ToolSchema


class ModelFailure(StrEnum):
    """How a model fails; the `kind` of a `ModelError`."""

    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    QUOTA = "quota"
    """Nothing is left to pay with; waiting does not help."""
    UNAVAILABLE = "unavailable"
    SERVER = "server"
    CONNECTION = "connection"
    AUTHENTICATION = "authentication"
    NOT_FOUND = "not_found"
    REJECTED = "rejected"
    """The request itself, for a reason that is none of the others."""
    CONTEXT_OVERFLOW = "context_overflow"
    """The conversation is longer than the model can read."""
    TRUNCATED = "truncated"
    """The answer broke off."""
    TOO_LARGE = "too_large"
    """The answer is larger than the limit; it was not read to its end."""
    MALFORMED = "malformed"
    """The answer is nothing that the model's interface allows."""
    REFUSED = "refused"
    UNRECORDED = "unrecorded"
    """A recording or a script has no answer to this request."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    instructions: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSchema, ...] = ()
    output_tool: ToolSchema | None = None
    """A tool that the answer must be a call of, if the answer has a type."""


@dataclass(frozen=True, slots=True)
class TextPiece:
    text: str


@dataclass(frozen=True, slots=True)
class ThoughtPiece:
    text: str


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The whole of it; the last thing that a model yields."""

    text: str = ""
    thought: str = ""
    calls: tuple[CallRequest, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    is_measured: bool = True
    cost: float | None = None
    """The cost in US dollars; None when it is not known."""
    native: JsonValue = None


ModelEvent = TextPiece | ThoughtPiece | ModelAnswer


class Model(Protocol):
    @property
    def name(self) -> str: ...

    def connected(self) -> AbstractAsyncContextManager[None]:
        """Around all requests of a task: whatever is kept open in between is closed at the end."""
        ...

    def respond(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Pieces as they come, and last the answer. ModelError when there is none."""
        ...
