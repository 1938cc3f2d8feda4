"""Messages on standard input and output, one JSON text in each line.

Reads and writes without threads, so that a signal ends the server while it waits for input, and without trust: a line
that is too long is dropped as it comes, and a line that is not a message is answered with an error.
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import cast

import anyio
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, RequestId, jsonrpc_message_adapter
from pydantic import ValidationError

from fumehood.integrations.mcp.clients import open_clients
from fumehood.integrations.mcp.context import MOST_MESSAGE_BYTES, ToolServerSettings
from fumehood.integrations.mcp.server import SandboxServer
from fumehood.policy import format_size

_CHUNK_BYTES = 64 * 1024
# A pipe that is writable at all takes this much without blocking.
_PIECE_BYTES = 4096


async def serve_stdio(settings: ToolServerSettings) -> None:
    """Serve until standard input ends or standard output is closed."""
    with _private_streams() as (source, sink):
        async with open_clients(settings) as clients, anyio.create_task_group() as tasks:
            server = SandboxServer(clients)
            into, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            outgoing, out_of = anyio.create_memory_object_stream[SessionMessage](0)
            tasks.start_soon(_read, source, into, outgoing.clone())
            tasks.start_soon(_write, sink, out_of, tasks.cancel_scope)
            await server.run(incoming, outgoing, server.create_initialization_options())
            tasks.cancel_scope.cancel()


@contextmanager
def _private_streams() -> Iterator[tuple[int, int]]:
    """Both streams at other descriptors: what other code in this process prints goes to standard error."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        yield source, sink
    finally:
        sys.stdout.flush()
        os.dup2(source, 0)
        os.dup2(sink, 1)
        for descriptor in (source, sink, nothing):
            os.close(descriptor)


async def _read(
    source: int,
    into: MemoryObjectSendStream[SessionMessage | Exception],
    outgoing: MemoryObjectSendStream[SessionMessage],
) -> None:
    async with into, outgoing:
        async for line in read_lines(source):
            if isinstance(line, TooLong):
                await outgoing.send(
                    _error(INVALID_REQUEST, f"a message has more than {format_size(MOST_MESSAGE_BYTES)}")
                )
            elif line.strip():
                message = _parsed(line)
                await (outgoing if isinstance(message.message, JSONRPCError) else into).send(message)


class TooLong:
    """A marker in place of a line that was dropped."""


async def read_lines(source: int) -> AsyncIterator[bytes | TooLong]:
    """Complete lines; what comes after the last line end is dropped."""
    begun, is_dropping = bytearray(), False
    while data := await _more(source):
        *ends, rest = data.split(b"\n")
        for end in ends:
            begun += end
            yield TooLong() if is_dropping or len(begun) > MOST_MESSAGE_BYTES else bytes(begun)
            begun, is_dropping = bytearray(), False
        begun += rest
        if len(begun) > MOST_MESSAGE_BYTES:
            begun, is_dropping = bytearray(), True


async def _more(source: int) -> bytes:
    while True:
        try:
            await anyio.wait_readable(source)
        except PermissionError:  # a regular file, which is always readable
            await anyio.lowlevel.checkpoint()
        try:
            return os.read(source, _CHUNK_BYTES)
        except BlockingIOError:
            continue
        except OSError:  # a terminal that is gone
            return b""


def _parsed(line: bytes) -> SessionMessage:
    """A message, or the error that answers a line that is not one."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValidationError:
        pass
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError) as error:
        return _error(PARSE_ERROR, f"a line is not valid JSON: {error}")
    if isinstance(found, list):
        return _error(INVALID_REQUEST, "batches are not taken; send one message in each line")
    name = cast("dict[str, object]", found).get("id") if isinstance(found, dict) else None
    known = name if isinstance(name, str | int) and not isinstance(name, bool) else None
    return _error(INVALID_REQUEST, "a line is not a message of JSON-RPC 2.0", known)


def _error(code: int, text: str, name: RequestId | None = None) -> SessionMessage:
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=name, error=ErrorData(code=code, message=text)))


async def _write(sink: int, out_of: MemoryObjectReceiveStream[SessionMessage], everything: anyio.CancelScope) -> None:
    async with out_of:
        async for each in out_of:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            if not await _wrote(sink, text.encode() + b"\n"):
                everything.cancel()
                return


async def _wrote(sink: int, data: bytes) -> bool:
    """False when the other side has closed the stream."""
    rest = memoryview(data)
    while rest:
        if not _takes_more(sink):
            await anyio.wait_writable(sink)
        try:
            rest = rest[os.write(sink, rest[:_PIECE_BYTES]) :]
        except BlockingIOError:
            continue
        except OSError:
            return False
    return True


def _takes_more(sink: int) -> bool:
    """Whether it can be written to now, as nearly always: the event loop needs a turn to find that out."""
    poll = select.poll()
    poll.register(sink, select.POLLOUT)
    return bool(poll.poll(0))
