"""An MCP server with one tool that does nothing: what a call costs before any of our code is reached."""

from __future__ import annotations

from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

_TEXT = "Success.\nstdout:\n1"
_RUN = {"id": f"run_{0:016x}", "status": "success", "cause": "exit", "exit_code": 0, "duration_ms": 3.1}

_Context = ServerRequestContext[Any, Any]


async def _list(context: _Context, params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name="python", input_schema={"type": "object"})])


async def _call(context: _Context, params: CallToolRequestParams) -> CallToolResult:
    """As much as a call of the tool `python` returns."""
    data = {"status": "success", "text": _TEXT, "run": {**_RUN, "truncated": False}}
    return CallToolResult(content=[TextContent(text=_TEXT)], structured_content=data)


async def main() -> None:
    server: Server[Any] = Server("empty", on_list_tools=_list, on_call_tool=_call)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
