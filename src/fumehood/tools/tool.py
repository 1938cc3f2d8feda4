"""A tool: something that a model may call by name, with arguments of a known shape, and what it is given for a call."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from pydantic import BaseModel, ConfigDict

from fumehood.audit.trail import OFF, Trail
from fumehood.events import Finished, Stderr, Stdout
from fumehood.keywords import known_fields
from fumehood.results import Display, RunResult
from fumehood.sandbox.request import RunOptions
from fumehood.tools.result import ToolOutput

MOST_WAIT_SECONDS = 60
"""The longest that a model may let a tool wait."""

if TYPE_CHECKING:
    from fumehood.policy import Policy
    from fumehood.sandbox.interface import AnySandbox, AnySession

Watch = Callable[[Stdout | Stderr], None]
"""Is called as soon as a run has written something, with what it wrote, unfiltered; must not block."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    sandbox: AnySandbox
    watch: Watch | None = None
    audit: Trail = OFF
    """Ties what the tool records to its call."""

    async def run(self, code: str, *, session: AnySession | None = None, **options: Unpack[RunOptions]) -> RunResult:
        """Run code in the sandbox, or in a session of it; the result is the same whether `watch` is given or not."""
        place = session or self.sandbox
        if self.watch is None:
            return await place.run(code, **options)
        stdout, stderr = bytearray(), bytearray()
        displays: list[Display] = []
        async with aclosing(place.stream(code, **options)) as events:
            async for event in events:
                match event:
                    case Stdout(data):
                        stdout += data
                        self.watch(event)
                    case Stderr(data):
                        stderr += data
                        self.watch(event)
                    case Display():
                        displays.append(event)
                    case Finished(result):
                        return replace(
                            result, stdout_bytes=bytes(stdout), stderr_bytes=bytes(stderr), displays=tuple(displays)
                        )
        raise AssertionError("a stream ends with Finished")


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
    run: Callable[[ToolContext, Any], Awaitable[ToolOutput]]
    """Carries out a call, whose arguments are an instance of `arguments`."""
    parallel: bool = True
    """Whether it may be carried out at the same time as other calls of the same answer of a model."""
    about: Callable[[Policy], str] | None = None
    """What a model has to know of the sandbox to call it well."""
    counts_as: str | None = None
    """Another tool whose rules in `approvals` hold for this one too, since both can do the same."""
    is_recorded_first: bool = False
    """Whether the sandbox records what it does before it is done, as it does with runs, and it does nothing else."""

    def schema(self, policy: Policy | None = None) -> ToolSchema:
        """`policy` is that of the sandbox it would be carried out in."""
        parameters = json.loads(_parameters(self.arguments))
        about = f" {self.about(policy)}" if self.about is not None and policy is not None else ""
        return {
            "name": self.name,
            "description": self.description + about,
            "parameters": cast("dict[str, Any]", parameters),
            "risk": self.risk.value,
        }


@cache
def _parameters(arguments: type[BaseModel]) -> str:
    """As text: each caller gets objects of its own."""
    return json.dumps(_without_titles(arguments.model_json_schema()))


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
