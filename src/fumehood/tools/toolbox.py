"""The tools that a model has, and the way of a call: found, checked, admitted, carried out, told."""

from __future__ import annotations

import difflib
import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
from pydantic import BaseModel, ValidationError

from fumehood.audit.trail import Trail
from fumehood.errors import AuditError, DeniedError, UsageError
from fumehood.keywords import known_keywords
from fumehood.tools.calls import Gate, ToolCall, ToolCalled, ToolRefused, ToolReturned, parse_object, texts_of
from fumehood.tools.filters import Direction, Filtered, Pipeline
from fumehood.tools.functions import Function, as_tools
from fumehood.tools.result import ToolOutput, ToolResult, ToolStatus
from fumehood.tools.tool import Tool, ToolContext, ToolSchema, Watch

if TYPE_CHECKING:
    from fumehood.sandbox.interface import AnySandbox

_MOST_PROBLEMS = 5
# Arguments that are code, and in which language.
_LANGUAGES = {"code": "python", "command": "bash"}
# Names and reasons that a model wrote, as they go to the audit log.
_MOST_TOLD = 200


class _InvalidCallError(Exception):
    """An invalid call by the model; the text is sent to the model."""


class Toolbox:
    """`Toolbox(sandbox, PYTHON, SHELL)`. Calls that are not valid are results; exceptions are for the application."""

    @known_keywords()
    def __init__(
        self,
        sandbox: AnySandbox,
        *tools: Tool | Function,
        gate: Gate | None = None,
        filters: Pipeline | None = None,
        trail: Trail | None = None,
    ) -> None:
        """`filters` and `trail` are those of the sandbox unless others are given, as for one task of several."""
        self._sandbox = sandbox
        self._gate = gate
        self._trail = trail or sandbox.trail
        self._filters = filters or Pipeline(sandbox.policy, trail=self._trail, source=sandbox.secrets)
        if sandbox.policy.approvals and gate is None:
            raise UsageError(
                "the policy has approvals and this toolbox has no gate to ask; give it gate=Approvals(policy)"
            )
        self._tools = {tool.name: tool for tool in as_tools(tools)}
        self._schemas: tuple[str, list[ToolSchema]] = "", []
        if len(self._tools) != len(tools):
            raise UsageError("two tools have the same name; give each its own")

    @property
    def gate(self) -> Gate | None:
        return self._gate

    def schemas(self) -> list[ToolSchema]:
        """The tools' schemas, with a description of the sandbox. Made once: a model gets them at every turn."""
        policy = self._sandbox.policy
        if self._schemas[0] != policy.digest:
            self._schemas = policy.digest, [tool.schema(policy) for tool in self._tools.values()]
        return list(self._schemas[1])

    def is_parallel(self, name: str) -> bool:
        """Whether a call of this may be carried out at the same time as others; calls that are not valid may."""
        return name not in self._tools or self._tools[name].parallel

    def prepare(self, name: str, arguments: Mapping[str, Any] | str | bytes) -> ToolCall | None:
        """The call that this would be, to be judged beforehand; None when it is not valid."""
        try:
            tool = self._find(name)
            return self._call(tool, _checked(tool, _mapping(arguments)))
        except _InvalidCallError:
            return None

    async def call(
        self, name: str, arguments: Mapping[str, Any] | str | bytes, *, watch: Watch | None = None
    ) -> ToolResult:
        """`arguments` as a mapping, or as the JSON text that a model wrote; `watch` sees what is printed meanwhile."""
        try:
            tool = self._find(name)
            given = _checked(tool, _mapping(arguments))
            call = self._call(tool, given)
        except _InvalidCallError as error:
            await self._trail.write(ToolRefused(_told(name), _told(str(error))))
            return ToolResult(str(error), ToolStatus.INVALID)
        return await self._recorded(tool, call, given, watch)

    def _find(self, name: str) -> Tool:
        if name in self._tools:
            return self._tools[name]
        near = difflib.get_close_matches(name[:_MOST_TOLD], self._tools, n=1)
        guess = f" Did you mean {near[0]}?" if near else ""
        raise _InvalidCallError(
            f"There is no tool {name[:_MOST_TOLD]!r}.{guess} The tools are: {', '.join(self._tools)}."
        )

    def _call(self, tool: Tool, given: BaseModel) -> ToolCall:
        arguments = given.model_dump(mode="json")
        code = next((name for name in _LANGUAGES if isinstance(arguments.get(name), str)), None)
        language = _LANGUAGES.get(code or "", "")
        call_id = f"call_{secrets.token_hex(8)}"
        digest = self._sandbox.policy.digest
        return ToolCall(tool.name, arguments, digest, tool.risk, code, language, call_id, tool.counts_as)

    async def _recorded(self, tool: Tool, call: ToolCall, given: BaseModel, watch: Watch | None) -> ToolResult:
        trail = self._trail.within(call=call.call_id)
        found = self._filters.judge(texts_of(call.arguments))
        called = ToolCalled(call.tool, call.risk.value, call.digest)
        await (trail.defer(called) if not found and self._records_next(tool) else trail.write(called))
        try:
            result = await self._refused(found)
            if result is None:
                result = await self._admitted(tool, call, given, ToolContext(self._sandbox, watch, audit=trail))
        except BaseException:
            with anyio.CancelScope(shield=True), suppress(AuditError):
                await trail.flush()
            raise
        await trail.write(ToolReturned(call.tool, result.status.value, result.run.run_id if result.run else None))
        return result

    def _records_next(self, tool: Tool) -> bool:
        """Whether nothing comes of a call before the next record: no person is asked, and the sandbox writes one to the
        same log before the tool does anything."""
        asks_by_policy = self._gate is None or getattr(self._gate, "asks_by_policy", False)
        is_asked = not asks_by_policy or bool(self._sandbox.policy.approvals)
        return tool.is_recorded_first and not is_asked and self._sandbox.trail.log is self._trail.log

    async def _refused(self, found: list[Filtered]) -> ToolResult | None:
        """Records what the filters found in the arguments; a result if that is not to be passed on."""
        for each in found:
            await self._filters.tell(each, Direction.FROM_MODEL)
        withheld = next((each for each in found if each.is_blocked), None)
        return None if withheld is None else ToolResult(f"Denied: {withheld.text}", ToolStatus.DENIED)

    async def _admitted(self, tool: Tool, call: ToolCall, given: BaseModel, context: ToolContext) -> ToolResult:
        if self._gate is None:
            return await self._carry_out(tool, given, context)
        answer = await self._gate.admit(call)
        if answer.allowed and call.policy_digest != self._sandbox.policy.digest:
            # What was said yes to was a call under the policy of then.
            result = ToolResult("Denied: the policy has changed since it was asked; try again.", ToolStatus.DENIED)
        elif not answer.allowed:
            result = ToolResult(f"Denied: {answer.reason or 'it was not approved'}.", ToolStatus.DENIED)
        else:
            if answer.arguments is not None:
                given = _edited(tool, answer.arguments)
                call = self._call(tool, given)
            result = await self._carry_out(tool, given, context)
        await self._gate.finished(call, result)
        return result

    async def _carry_out(self, tool: Tool, given: BaseModel, context: ToolContext) -> ToolResult:
        """What the model reads is filtered. The application has the whole run, as it was."""
        output = await _attempt(tool, given, context)
        shown = await self._filters.show(output.parts, Direction.TOOL_RESULT)
        return ToolResult(shown.text, output.status, output.run, output.value)


async def _attempt(tool: Tool, given: BaseModel, context: ToolContext) -> ToolOutput:
    try:
        return await tool.run(context, given)
    except DeniedError as error:
        return ToolOutput(f"Denied by the policy: {error}", ToolStatus.DENIED)
    except UsageError as error:
        return ToolOutput(f"It could not be done: {error}", ToolStatus.ERROR)


def _told(text: str) -> str:
    """Also what no log could hold: half of a surrogate pair is nothing that UTF-8 has."""
    cut = text if len(text) <= _MOST_TOLD else text[:_MOST_TOLD] + "..."
    return cut.encode("utf-8", "backslashreplace").decode()


def _mapping(arguments: Mapping[str, Any] | str | bytes) -> Mapping[str, Any]:
    if isinstance(arguments, Mapping):
        return arguments
    try:
        return parse_object(arguments or "{}")
    except ValueError as error:
        raise _InvalidCallError(f"The arguments are {error}. Send one JSON object.") from None


def _checked(tool: Tool, arguments: Mapping[str, Any]) -> BaseModel:
    try:
        # As JSON, so that only what a model can write is taken: no conversions besides those that JSON needs.
        return tool.arguments.model_validate_json(json.dumps(dict(arguments), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise _InvalidCallError(_explained(tool, error)) from None


def _edited(tool: Tool, arguments: Mapping[str, Any]) -> BaseModel:
    """A person's mistake, and not one that a model could mend."""
    try:
        return _checked(tool, arguments)
    except _InvalidCallError as error:
        raise UsageError(f"the edited arguments are not valid: {error}") from None


def _explained(tool: Tool, error: Exception) -> str:
    wanted = json.dumps(tool.schema()["parameters"].get("properties", {}), ensure_ascii=False)
    if not isinstance(error, ValidationError):
        return f"The arguments of {tool.name} cannot be used: {error}. They are: {wanted}"
    problems = [
        f"{'.'.join(map(str, details['loc'])) or 'arguments'}: {details['msg']}"
        for details in error.errors(include_url=False)[:_MOST_PROBLEMS]
    ]
    return f"The arguments of {tool.name} are not right. {'; '.join(problems)}. They are: {wanted}"
