"""Handoffs: a tool that hands a task over to another agent. Its targets are fixed when the agent is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import Field, create_model

from fumehood.errors import UsageError
from fumehood.tools.result import ToolOutput
from fumehood.tools.tool import Arguments, Risk, Tool, ToolContext

if TYPE_CHECKING:
    from fumehood.agents.participant import Participant

HANDOFF_TOOL = "hand_off"
_MOST_DESCRIPTION = 200


@dataclass(frozen=True, slots=True)
class Handoff:
    target: str
    text: str


def check_targets(given: Sequence[str | Participant[object]]) -> dict[str, Participant[object] | None]:
    """Targets by name, with the agents of those that were not given as names."""
    whatever: object = given
    if not isinstance(whatever, list | tuple):
        raise UsageError(f"handoffs must be a list of agents and names of agents; this is {type(whatever).__name__}")
    targets: dict[str, Participant[object] | None] = {}
    for each in cast("Sequence[object]", whatever):
        name = each if isinstance(each, str) else getattr(each, "name", None)
        if not isinstance(name, str) or not name:
            raise UsageError(f"handoffs must be agents and names of agents; {each!r} is neither")
        if name in targets:
            raise UsageError(f"two handoffs have the name {name!r}")
        targets[name] = None if isinstance(each, str) else cast("Participant[object]", each)
    return targets


def handoff_tool(targets: Mapping[str, Participant[object] | None]) -> Tool:
    """A model can name these targets; anything else is an invalid call."""
    described = [
        f"{name}: {' '.join(agent.description.split())[:_MOST_DESCRIPTION]}"
        for name, agent in targets.items()
        if agent is not None and agent.description
    ]
    description = "\n".join(("Who takes over.", *described))
    fields: dict[str, Any] = {
        "to": (Literal[tuple(targets)], Field(description=description)),
        "message": (str, Field(default="", description="What they need to know.")),
    }
    arguments = create_model("hand_off_arguments", __base__=Arguments, **fields)

    async def hand_over(_: ToolContext, given: Any) -> ToolOutput:
        return ToolOutput(f"{given.to} takes over.", value=Handoff(given.to, given.message))

    return Tool(
        HANDOFF_TOOL, "Hand the task over to another agent, and stop.", arguments, Risk.LOW, hand_over, parallel=False
    )
