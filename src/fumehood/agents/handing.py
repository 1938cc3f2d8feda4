"""Handing a task over to another agent: a tool whose targets are fixed when the agent is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, create_model

from fumehood.tools.result import ToolResult
from fumehood.tools.tool import Arguments, Risk, Tool

if TYPE_CHECKING:
    from fumehood.sandbox.sandbox import AsyncSandbox

HAND_OFF = "hand_off"


@dataclass(frozen=True, slots=True)
class HandOff:
    target: str
    text: str


def hand_off_tool(targets: Sequence[str]) -> Tool:
    """A model can name these and nobody else: anything else is an invalid call."""
    fields: dict[str, Any] = {
        "to": (Literal[tuple(targets)], Field(description="Who takes over.")),
        "message": (str, Field(default="", description="What they need to know.")),
    }
    arguments = create_model("hand_off_arguments", __base__=Arguments, **fields)

    async def hand_over(_: AsyncSandbox, given: Any) -> ToolResult:
        return ToolResult(f"{given.to} takes over.", value=HandOff(given.to, given.message))

    return Tool(
        HAND_OFF, "Hand the task over to somebody else, and stop.", arguments, Risk.LOW, hand_over, parallel=False
    )
