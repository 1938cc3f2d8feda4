"""Standard input that follows a run: from a descriptor of the client's, into a pipe at the server's end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from fumehood.guest.contract.frames import FrameError
from fumehood.remote.conversations import RemoteConversation

_CHUNK_BYTES = 64 * 1024


async def send_input(conversation: RemoteConversation, descriptor: int) -> None:
    """All that can be read from it, as it comes, and its end."""
    while data := await read_some(descriptor):
        await conversation.send({"feed": True}, data)
    conversation.end()


async def read_some(descriptor: int) -> bytes:
    """What can be read from it as soon as anything can; empty at its end."""
    loop = asyncio.get_running_loop()
    try:
        await _wait(loop.add_reader, loop.remove_reader, descriptor)
    except PermissionError:  # a regular file, which there is no waiting for
        return await asyncio.to_thread(os.read, descriptor, _CHUNK_BYTES)
    return os.read(descriptor, _CHUNK_BYTES)


async def _wait(
    add: Callable[[int, Callable[[], object]], object], remove: Callable[[int], object], descriptor: int
) -> None:
    ready = asyncio.Event()
    add(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        remove(descriptor)


@asynccontextmanager
async def received_input(conversation: RemoteConversation) -> AsyncIterator[int]:
    """A descriptor from which what the client sends can be read."""
    reading, writing = os.pipe()
    feeding = asyncio.ensure_future(_write_all(conversation, writing))
    try:
        yield reading
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        os.close(reading)


async def _write_all(conversation: RemoteConversation, descriptor: int) -> None:
    """What a program that has gone does not read any more is dropped."""
    try:
        os.set_blocking(descriptor, False)
        while (message := await conversation.receive()) is not None:
            if "feed" not in message.header:
                raise FrameError("a message that is no input of the run")
            with suppress(BrokenPipeError):
                await write_all(descriptor, message.body)
    finally:
        os.close(descriptor)


async def write_all(descriptor: int, data: bytes) -> None:
    """To a descriptor that does not block."""
    loop, rest = asyncio.get_running_loop(), memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            await _wait(loop.add_writer, loop.remove_writer, descriptor)
