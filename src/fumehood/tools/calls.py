"""A tool call: what is carried out, what its approval is bound to, the gate that admits it, and its audit events."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, cast

from fumehood.audit.events import AuditEvent
from fumehood.errors import UsageError
from fumehood.tools.result import ToolResult
from fumehood.tools.tool import Risk

# Different from every other digest of the same texts.
_DOMAIN = "fumehood tool call 1"
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_arguments(tool: str, arguments: Mapping[str, object]) -> str:
    try:
        return _ENCODER.encode(dict(arguments))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the arguments of tool {tool!r} cannot be written as JSON: {error}") from None


def call_digest(tool: str, arguments: Mapping[str, object], policy_digest: str) -> str:
    statement = _ENCODER.encode([_DOMAIN, tool, canonical_arguments(tool, arguments), policy_digest])
    return "sha256:" + hashlib.sha256(statement.encode("ascii")).hexdigest()


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool, checked and complete: exactly this is carried out, and approved."""

    tool: str
    arguments: Mapping[str, Any]
    """The arguments as JSON values, with every default filled in."""
    policy_digest: str
    risk: Risk = Risk.HIGH
    code: str | None = None
    """Which of the arguments is code or a command line."""
    language: str = ""
    call_id: str = ""
    counts_as: str | None = None
    """Another tool, whose rules hold for this call too."""

    @cached_property
    def canonical(self) -> str:
        """The arguments in their one spelling."""
        return canonical_arguments(self.tool, self.arguments)

    @cached_property
    def digest(self) -> str:
        """Over the tool, its exact arguments and the policy: an approval is bound to it."""
        return call_digest(self.tool, self.arguments, self.policy_digest)

    @property
    def text(self) -> str:
        """The code; without any, the arguments as JSON."""
        value = self.arguments.get(self.code) if self.code is not None else None
        return value if isinstance(value, str) else self.readable(self.arguments)

    @property
    def others(self) -> dict[str, object]:
        """The arguments besides the code."""
        return {name: value for name, value in self.arguments.items() if name != self.code}

    def texts(self) -> tuple[str, ...]:
        """What patterns are compared with: every text among the arguments, and all of them as JSON."""
        return (*texts_of(self.arguments), self.canonical, self.readable(self.arguments))

    def edited(self, text: str) -> ToolCall:
        """The same call with other code, or with other arguments as JSON where there is no code."""
        if self.code is not None and isinstance(self.arguments.get(self.code), str):
            return replace(self, arguments={**self.arguments, self.code: text})
        try:
            return replace(self, arguments=parse_object(text))
        except ValueError as error:
            raise UsageError(f"the arguments are {error}; they must be one JSON object, in {{ }}") from None

    @staticmethod
    def readable(arguments: Mapping[str, object]) -> str:
        return json.dumps(arguments, indent=2, sort_keys=True, ensure_ascii=False, default=repr)


def parse_object(text: str | bytes) -> dict[str, Any]:
    """The object that a model or a person wrote as JSON, or a ValueError."""
    try:
        found: object = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{type(found).__name__}, not an object")
    return cast("dict[str, Any]", found)


def _refuse_constant(name: str) -> None:
    """Python reads numbers that JSON does not have, and that no digest could be made of."""
    raise ValueError(f"{name} is not a number of JSON")


def texts_of(value: object) -> Iterator[str]:
    """Every text in it, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, object]", value).items():
            yield from (str(key), *texts_of(item))
    elif isinstance(value, list | tuple):
        for item in cast("list[object]", value):
            yield from texts_of(item)


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """A gate's answer to a call. Changed arguments make another call, with another digest."""

    allowed: bool
    reason: str = ""
    """Why it is not allowed, for the model."""
    arguments: Mapping[str, Any] | None = None
    """Arguments that replace the call's, when a person edited them."""


class Gate(Protocol):
    async def admit(self, call: ToolCall) -> GateAnswer:
        """Whether it may be carried out. May take as long as a person does."""
        ...

    async def finished(self, call: ToolCall, result: ToolResult) -> None:
        """It was carried out, or refused."""
        ...


@dataclass(frozen=True, slots=True)
class ToolCalled(AuditEvent):
    """Written before a person is asked and anything is done."""

    kind = "tool.called"

    tool: str
    risk: str
    digest: str


@dataclass(frozen=True, slots=True)
class ToolRefused(AuditEvent):
    """A call of an unknown tool, or with arguments that are not valid; no person was asked about it."""

    kind = "tool.refused"

    tool: str
    reason: str


@dataclass(frozen=True, slots=True)
class ToolReturned(AuditEvent):
    """A tool's result, recorded before the model receives it."""

    kind = "tool.returned"

    tool: str
    status: str
    run: str | None
