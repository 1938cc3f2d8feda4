"""A tool: something with a name that a model may call, with arguments of a known shape."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypedDict, cast

from pydantic import BaseModel, ConfigDict

from fumehood.keywords import known_fields
from fumehood.tools.result import ToolResult

if TYPE_CHECKING:
    from fumehood.policy import Policy
    from fumehood.tools.context import ToolContext


class Risk(StrEnum):
    """How much a call can do, in the words of a policy's `approvals`."""

    LOW = "low"
    """It looks at things in the sandbox."""
    MEDIUM = "medium"
    """It changes things in the sandbox, or does one thing in the application."""
    HIGH = "high"
    """It runs whatever the model writes."""


class Arguments(BaseModel):
    """What a call's arguments have to be: nothing unknown, and no value of another type taken for what was meant."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ToolSchema(TypedDict):
    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema."""
    risk: str


@known_fields
@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    arguments: type[BaseModel]
    risk: Risk
    run: Callable[[ToolContext, Any], Awaitable[ToolResult]]
    """Carries out a call, whose arguments are an instance of `arguments`."""
    parallel: bool = True
    """Whether it may be carried out at the same time as other calls of the same answer of a model."""
    about: Callable[[Policy], str] | None = None
    """What a model has to know of the sandbox to call it well."""

    def schema(self, policy: Policy | None = None) -> ToolSchema:
        """`policy` is that of the sandbox it would be carried out in."""
        parameters = _without_titles(self.arguments.model_json_schema())
        about = f" {self.about(policy)}" if self.about is not None and policy is not None else ""
        return {
            "name": self.name,
            "description": self.description + about,
            "parameters": cast("dict[str, Any]", parameters),
            "risk": self.risk.value,
        }


def _without_titles(part: object, *, holds_names: bool = False) -> object:
    """pydantic gives everything a title that says no more than its name, and models pay for every word."""
    if isinstance(part, list):
        return [_without_titles(item) for item in cast("list[object]", part)]
    if not isinstance(part, dict):
        return part
    return {
        key: _without_titles(value, holds_names=key in ("properties", "$defs"))
        for key, value in cast("dict[str, object]", part).items()
        if holds_names or key != "title" or not isinstance(value, str)
    }
