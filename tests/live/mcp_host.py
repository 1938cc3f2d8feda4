"""`hood mcp` as clients meet it: a process of its own, spoken to by the client of the protocol's official SDK."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from live.cli_host import HOOD
from live.loaded_hood import LoadedHood, handover
from live.traces import cgroups_of, descendants, wait_until
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, ImageContent, ResourceLink, TextContent

from fumehood.audit import AuditLog, Query

ERAS = ("legacy", "2026-07-28")


def environment() -> dict[str, str]:
    """What a client passes on is little; this is what finds the code under test and its log."""
    names = ("FUMEHOOD_AUDIT", "FUMEHOOD_APPROVALS", "DOCKER_HOST", "PATH", "HOME")
    path = os.pathsep.join(path for path in sys.path if path)
    return {"PYTHONPATH": path, **{name: os.environ[name] for name in names if name in os.environ}}


def parameters(*arguments: str | Path) -> StdioServerParameters:
    command, *front = HOOD
    return StdioServerParameters(command=command, args=[*front, "mcp", *map(str, arguments)], env=environment())


def quick_parameters(*arguments: str | Path) -> StdioServerParameters:
    """The same without the second that the imports take."""
    command, *front = handover("mcp")
    return StdioServerParameters(command=command, args=[*front, "mcp", *map(str, arguments)], env=environment())


@asynccontextmanager
async def connected(*arguments: str | Path, is_quick: bool = True, **options: Any) -> AsyncIterator[Client]:
    """A client that starts a server of its own; nothing of it is left afterwards."""
    before = descendants(os.getpid())
    start = quick_parameters if is_quick else parameters
    async with Client(start(*arguments), **options) as client:
        yield client
    wait_until(lambda: descendants(os.getpid()) <= before, 10.0, "the server and its sandboxes are gone")


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[bytes]
    address: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}

    @asynccontextmanager
    async def connected(self, **options: Any) -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(headers=self.headers, timeout=60) as http,
            Client(streamable_http_client(self.address, http_client=http), **options) as client,
        ):
            yield client

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2].partition("/")[0])

    def open_sandboxes(self) -> set[str | None]:
        """By what the audit log has of this server."""
        log = AuditLog.at(os.environ["FUMEHOOD_AUDIT"])
        opened = {
            record.sandbox_id
            for record in log.find(Query(kind="sandbox.opened"))
            if record.data["process"] == self.process.pid
        }
        return opened - {record.sandbox_id for record in log.find(Query(kind="sandbox.closed"))}


@contextmanager
def listening(*arguments: str | Path, token: str = "") -> Iterator[Server]:
    """A server that listens at a port of its own; ended as people end it, and then nothing of it is left."""
    command = ["mcp", "--http", "127.0.0.1:0", *map(str, arguments)]
    with LoadedHood(command, env=environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            address = process.stderr.readline().decode().removeprefix("hood: listening at ").strip()
            assert address.startswith("http://127.0.0.1:"), address + process.stderr.read().decode()
            if not token:
                token = process.stderr.readline().decode().removeprefix("hood: token: ").strip()
            yield Server(process, address, token)
            process.terminate()
            assert process.wait(20) == 0
            assert process.stdout is not None
            assert process.stdout.read() == b""
        finally:
            process.kill()
    assert descendants(process.pid) == set()
    assert cgroups_of(process.pid) == []


async def call(client: Client, name: str, **arguments: object) -> CallToolResult:
    result = await client.call_tool(name, arguments)
    assert isinstance(result, CallToolResult)
    return result


async def text(client: Client, name: str, **arguments: object) -> str:
    return text_of(await call(client, name, **arguments))


def text_of(result: CallToolResult) -> str:
    first = result.content[0]
    assert isinstance(first, TextContent)
    assert result.structured_content["text"] == first.text
    return first.text


def links(result: CallToolResult) -> list[str]:
    return [block.uri for block in result.content if isinstance(block, ResourceLink)]


def pictures(result: CallToolResult) -> list[str]:
    return [block.mime_type for block in result.content if isinstance(block, ImageContent)]
