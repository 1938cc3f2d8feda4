"""Fumehood's tools as a toolset of Pydantic AI."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Self

import anyio
from pydantic_ai import ApprovalRequired, ModelRetry, RunContext, ToolDefinition
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.tools import AgentDepsT
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from fumehood.errors import UsageError
from fumehood.integrations.toolboxes import FrameworkToolbox, open_toolbox
from fumehood.policy import AnyPolicy
from fumehood.remote.place import USUAL
from fumehood.sandbox.interface import Opener
from fumehood.tools import STANDARD, Tool, ToolCall, ToolResult, ToolSchema, ToolStatus

# The toolbox validates arguments itself, and its answer says what is wrong with them.
_ANY_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))


class SandboxToolset(AbstractToolset[AgentDepsT]):
    """Has one sandbox, open as long as the agent is: for one run, or for all runs in `async with agent`.

    A call that the policy's `approvals` are about is deferred: the run ends with `DeferredToolRequests`, and the next
    one, with the answer, makes the call. What the policy denies is a failed tool call with the reason in it.
    """

    def __init__(
        self,
        policy: AnyPolicy | None = None,
        *,
        tools: Sequence[Tool] = STANDARD,
        session: bool = False,
        max_retries: int = 2,
        id: str | None = "fumehood",
        sandboxes: Opener = USUAL,
    ) -> None:
        self._opener = sandboxes
        self._policy, self._tools, self._session = policy, tuple(tools), session
        self._max_retries = max_retries
        self._id = id
        self._turn = anyio.Lock()
        self._users = 0
        self._toolbox: FrameworkToolbox | None = None
        self._lifetime = AsyncExitStack()

    @property
    def id(self) -> str | None:
        return self._id

    @property
    def toolbox(self) -> FrameworkToolbox:
        """The open one, for what the application wants to do in the sandbox itself."""
        if self._toolbox is None:
            raise UsageError("the toolset is not open; use it in a run of an agent, or inside `async with agent:`")
        return self._toolbox

    async def __aenter__(self) -> Self:
        async with self._turn:
            if self._users == 0:
                opening = open_toolbox(
                    self._policy,
                    self._tools,
                    framework="pydantic-ai",
                    session=self._session,
                    stop=_defer,
                    sandboxes=self._opener,
                )
                self._toolbox = await self._lifetime.enter_async_context(opening)
            self._users += 1
        return self

    async def __aexit__(self, *args: object) -> None:
        with anyio.CancelScope(shield=True):
            async with self._turn:
                self._users -= 1
                if self._users == 0:
                    self._toolbox = None
                    await self._lifetime.aclose()

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        return {tool.name: self._offered(tool.schema()) for tool in self._tools}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> str:
        toolbox = self.toolbox
        with toolbox.approvals.given(ctx.tool_call_approved):
            return _text(await toolbox.call(name, tool_args))

    def _offered(self, schema: ToolSchema) -> ToolsetTool[AgentDepsT]:
        definition = ToolDefinition(
            name=schema["name"],
            description=schema["description"],
            parameters_json_schema=schema["parameters"],
            metadata={"risk": schema["risk"]},
        )
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=self._max_retries, args_validator=_ANY_OBJECT)


def _defer(call: ToolCall) -> ApprovalRequired:
    return ApprovalRequired({"risk": call.risk.value, "digest": call.digest, "policy": call.policy_digest})


def _text(result: ToolResult) -> str:
    """The text for the model. Arguments that are not valid are a ModelRetry, a denial is a ToolFailed."""
    match result.status:
        case ToolStatus.INVALID:
            raise ModelRetry(result.text)
        case ToolStatus.DENIED:
            raise ToolFailed(result.text)
        case ToolStatus.SUCCESS | ToolStatus.ERROR:
            return result.text
