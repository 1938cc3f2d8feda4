"""Fumehood's tools as LangChain's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool

from fumehood.integrations.toolboxes import FrameworkToolbox, open_toolbox
from fumehood.policy import AnyPolicy
from fumehood.remote.place import USUAL
from fumehood.sandbox.interface import Opener
from fumehood.tools import STANDARD, Tool, ToolResult, ToolSchema


@asynccontextmanager
async def open_tools(
    policy: AnyPolicy | None = None,
    *,
    tools: Sequence[Tool] = STANDARD,
    session: bool = False,
    sandboxes: Opener = USUAL,
) -> AsyncIterator[list[BaseTool]]:
    """Tools that share one sandbox. Without a policy nothing is allowed.

    A result's artifact is Fumehood's `ToolResult`. Calls that the policy's `approvals` are about are denied: LangChain
    tells a tool nothing of who has approved it.
    """
    async with open_toolbox(policy, tools, framework="langchain", session=session, sandboxes=sandboxes) as toolbox:
        yield [_as_langchain(toolbox, schema) for schema in toolbox.schemas()]


def _as_langchain(toolbox: FrameworkToolbox, schema: ToolSchema) -> BaseTool:
    async def call(**arguments: Any) -> tuple[str, ToolResult]:
        result = await toolbox.call(schema["name"], arguments)
        return result.text, result

    return StructuredTool(
        name=schema["name"],
        description=schema["description"],
        args_schema=schema["parameters"],
        coroutine=call,
        response_format="content_and_artifact",
        metadata={"risk": schema["risk"]},
    )
