"""Fumehood's tools as function tools, and an executor for the SDK's own shell tool."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from agents import (
    FunctionTool,
    RunContextWrapper,
    ShellActionRequest,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellCommandRequest,
    ShellResult,
    ShellTool,
    Tool,
)
from agents.tool_context import ToolContext

from fumehood.integrations.toolboxes import FrameworkToolbox, open_toolbox
from fumehood.policy import AnyPolicy
from fumehood.remote.place import USUAL
from fumehood.results import Status
from fumehood.sandbox.interface import Opener
from fumehood.tools import SHELL, STANDARD, ToolResult, ToolSchema
from fumehood.tools import Tool as FumehoodTool

_FRAMEWORK = "openai-agents"


@asynccontextmanager
async def open_tools(
    policy: AnyPolicy | None = None,
    *,
    tools: Sequence[FumehoodTool] = STANDARD,
    session: bool = False,
    sandboxes: Opener = USUAL,
) -> AsyncIterator[list[Tool]]:
    """Tools that share one sandbox. Without a policy nothing is allowed.

    A call that the policy's `approvals` are about interrupts the run, as the SDK has it, until it is approved.
    """
    async with open_toolbox(policy, tools, framework=_FRAMEWORK, session=session, sandboxes=sandboxes) as toolbox:
        yield [_as_function_tool(toolbox, schema) for schema in toolbox.schemas()]


@asynccontextmanager
async def open_shell_tool(policy: AnyPolicy | None = None, *, sandboxes: Opener = USUAL) -> AsyncIterator[ShellTool]:
    """The tool that some models know by themselves. Its commands run one after the other, up to one that fails."""
    async with open_toolbox(policy, [SHELL], framework=_FRAMEWORK, sandboxes=sandboxes) as toolbox:

        async def execute(request: ShellCommandRequest) -> ShellResult:
            is_given = request.ctx_wrapper.is_tool_approved("shell", request.data.call_id) is True
            with toolbox.approvals.given(is_given):
                return await _run_commands(toolbox, request.data.action)

        async def ask(context: RunContextWrapper[Any], action: ShellActionRequest, call_id: str) -> bool:
            return any(_needs_approval(toolbox, "shell", _arguments(action, line)) for line in action.commands)

        yield ShellTool(executor=execute, needs_approval=ask)


def _as_function_tool(toolbox: FrameworkToolbox, schema: ToolSchema) -> Tool:
    name = schema["name"]

    async def invoke(context: ToolContext[Any], arguments: str) -> str:
        with toolbox.approvals.given(context.is_tool_approved(name, context.tool_call_id) is True):
            return (await toolbox.call(name, arguments)).text

    async def ask(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        return _needs_approval(toolbox, name, arguments)

    return FunctionTool(
        name=name,
        description=schema["description"],
        params_json_schema=schema["parameters"],
        on_invoke_tool=invoke,
        strict_json_schema=False,
        needs_approval=ask,
    )


def _needs_approval(toolbox: FrameworkToolbox, name: str, arguments: dict[str, Any]) -> bool:
    """False for a call that is not valid: it is not made, and its answer says what is wrong with it."""
    call = toolbox.prepare(name, arguments)
    return call is not None and toolbox.approvals.is_needed(call)


def _arguments(action: ShellActionRequest, command: str) -> dict[str, Any]:
    return {"command": command, "timeout": action.timeout_ms / 1000 if action.timeout_ms else None}


async def _run_commands(toolbox: FrameworkToolbox, action: ShellActionRequest) -> ShellResult:
    outputs: list[ShellCommandOutput] = []
    for command in action.commands:
        outputs.append(_output(command, await toolbox.call("shell", _arguments(action, command))))
        if outputs[-1].exit_code != 0:
            break
    return ShellResult(outputs, max_output_length=action.max_output_length)


def _output(command: str, result: ToolResult) -> ShellCommandOutput:
    """What the model reads has been filtered and cut by the toolbox: it is that text, and not the run's own output."""
    is_late = result.run is not None and result.run.status is Status.TIMEOUT
    code = result.run.exit_code if result.run else 1
    outcome = ShellCallOutcome("timeout") if is_late else ShellCallOutcome("exit", code)
    return ShellCommandOutput(stdout=result.text, outcome=outcome, command=command)
