"""Messages of a task: their source, text and order.

`source` is set by us and never read from a text, so that no agent can speak in another's name.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from fumehood.tools.result import ToolStatus

USER = "user"
NOTE = "note"
"""The source of what we tell a model ourselves, in place of messages that were left out, or of an answer."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CallRequest(_Part):
    """A call that a model asks for; `arguments` is the JSON text that it wrote, whatever that is."""

    call_id: str
    tool: str
    arguments: str


class UserMessage(_Part):
    """A message from outside of the agent that reads it: of the user, or of another agent by its name."""

    kind: Literal["user"] = "user"
    source: str = USER
    text: str


class AssistantMessage(_Part):
    """What a model answered."""

    kind: Literal["assistant"] = "assistant"
    source: str
    text: str = ""
    thought: str = ""
    calls: tuple[CallRequest, ...] = ()
    native: JsonValue = None
    """Data of the model's own interface (signatures of thoughts and the like), sent back unchanged."""


class ToolMessage(_Part):
    """What came of a call."""

    kind: Literal["tool"] = "tool"
    source: str
    call_id: str
    tool: str
    status: ToolStatus
    text: str


ChatMessage = Annotated[UserMessage | AssistantMessage | ToolMessage, Field(discriminator="kind")]


def unanswered(messages: list[ChatMessage]) -> tuple[CallRequest, ...]:
    """Calls of the last answer that have no result yet, in order."""
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.call_id)
        elif isinstance(message, AssistantMessage):
            return tuple(call for call in message.calls if call.call_id not in answered)
        else:
            return ()
    return ()
