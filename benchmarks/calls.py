"""What a model's call of a tool costs on its way through the Model Context Protocol, against the bare run."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec

from fumehood.cli.bench.measurement import Row, in_turns
from fumehood.cli.bench.runs import PROGRAM
from fumehood.sandbox.async_sandbox import AsyncSandbox

_NAME = "tool call over MCP / bare run"


async def measure(rounds: int) -> AsyncIterator[Row]:
    """With the client of the official SDK and a server that it starts, over standard input and output."""
    if find_spec("mcp") is None:
        yield Row(_NAME, missing="needs the extra mcp")
        return
    from mcp import Client, StdioServerParameters

    server = StdioServerParameters(command=sys.executable, args=["-m", "fumehood", "mcp"], env=dict(os.environ))
    async with AsyncSandbox() as box, Client(server) as client:
        call, bare = await in_turns(
            rounds, lambda: client.call_tool("python", {"code": PROGRAM}), lambda: box.run(PROGRAM)
        )
    yield Row(_NAME, call, against=bare)
