"""One connection to a published port, carried by a conversation. What comes from the port decides when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress

from fumehood.remote.conversations import RemoteConversation
from fumehood.remote.link import LinkClosedError

_CHUNK_BYTES = 60 * 1024


async def carry_from_port(
    conversation: RemoteConversation, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """At the end that has the port."""
    async with _beside(_receive(conversation, writer)):
        await _send(conversation, reader)


async def carry_to_port(
    conversation: RemoteConversation, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """At the end that has accepted the connection."""
    async with _beside(_send(conversation, reader)):
        await _receive(conversation, writer)


@asynccontextmanager
async def _beside(other: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """The other direction goes on meanwhile, and ends with this one."""
    task = asyncio.ensure_future(other)
    try:
        with suppress(OSError, LinkClosedError):  # one of the two ends has gone, which ends both directions
            yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _send(conversation: RemoteConversation, reader: asyncio.StreamReader) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        await conversation.send({"data": True}, data)
    conversation.end()


async def _receive(conversation: RemoteConversation, writer: asyncio.StreamWriter) -> None:
    while (message := await conversation.receive()) is not None:
        writer.write(message.body)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
