"""What a model's call of a tool costs on its way through the Model Context Protocol, against the bare run."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

from fumehood.cli.bench.measurement import Row, in_turns
from fumehood.cli.bench.runs import PROGRAM
from fumehood.sandbox.async_sandbox import AsyncSandbox

_ROOT = Path(__file__).parents[1]
_NAME = "tool call over MCP / bare run"
_FLOOR = "tool call over MCP / bare run and a tool that does nothing"


async def measure(rounds: int) -> AsyncIterator[Row]:
    """With the client of the official SDK and a server that it starts, over standard input and output."""
    if find_spec("mcp") is None:
        yield Row(_NAME, missing="needs the extra mcp")
        return
    from mcp import Client, StdioServerParameters

    def started(module: str, *words: str) -> Client:
        argv = ["-m", module, *words]
        return Client(StdioServerParameters(command=sys.executable, args=argv, env=dict(os.environ), cwd=_ROOT))

    async with AsyncSandbox() as box, started("fumehood", "mcp") as ours, started("benchmarks.empty_server") as empty:
        call, nothing, bare = await in_turns(
            rounds,
            lambda: ours.call_tool("python", {"code": PROGRAM}),
            lambda: empty.call_tool("python", {"code": PROGRAM}),
            lambda: box.run(PROGRAM),
        )
    yield Row(_NAME, call, against=bare)
    yield Row(_FLOOR, call, against=bare + nothing)
