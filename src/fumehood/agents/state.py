"""What is kept of agents and teams between processes: JSON with a version, checked before any of it is used.

Only what was said and done: policies, tools and models are those of the object that it is loaded into, so that a state
that was tampered with opens nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fumehood.agents.budget import Usage
from fumehood.agents.messages import ChatMessage, UserMessage
from fumehood.errors import UsageError


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PausedTask(_Kept):
    """A task that waits for an approval."""

    task_id: str
    usage: Usage
    messages: tuple[ChatMessage, ...]
    """What was said in it so far."""


class AgentState(_Kept):
    version: Literal[1] = 1
    kind: Literal["agent"] = "agent"
    name: str
    messages: tuple[ChatMessage, ...]
    approval: str | None = None
    """The id under which a call of the last answer was asked for."""
    task: PausedTask | None = None


class TeamState(_Kept):
    version: Literal[1] = 1
    kind: Literal["team"] = "team"
    name: str
    said: tuple[UserMessage, ...]
    heard: Mapping[str, int]
    """How much of it each participant has read."""
    turn: int
    speaker: str | None
    """Whose turn is the last."""
    is_waiting: bool
    """Whether that turn is paused."""
    first_said: int
    first_message: int
    """Where the last task begins."""
    participants: Mapping[str, AnyState]
    task: PausedTask | None = None


AnyState = Annotated[AgentState | TeamState, Field(discriminator="kind")]
TeamState.model_rebuild()

S = TypeVar("S", AgentState, TeamState)


def read_state(kind: type[S], name: str, data: Mapping[str, object]) -> S:
    """UsageError when it is not what `save_state` of something of this kind and name has made."""
    try:
        state = kind.model_validate(data)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"])) or "the whole"
        raise UsageError(f"this is not the state of {name!r}: {where}: {problem['msg']}") from None
    if state.name != name:
        raise UsageError(f"this is the state of {state.name!r} and not of {name!r}")
    return state
