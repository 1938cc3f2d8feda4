"""Files: the client speaks to the file service of the sandbox, through a gate that judges and records."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

from fumehood.backends.interface import Conversation as FileConversation
from fumehood.guest.contract.frames import FrameError
from fumehood.remote.assembly import ConversationMessage
from fumehood.remote.conversations import RemoteConversation
from fumehood.remote.handlers.parts import Handlers, Parts


async def converse(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await pass_through(parts.box.files.gated(), conversation)


async def pass_through(
    service: AbstractAsyncContextManager[FileConversation], conversation: RemoteConversation
) -> None:
    async with service as inner:
        await conversation.send({})
        outward = asyncio.ensure_future(_pass_out(inner, conversation))
        try:
            await _pass_in(inner, conversation, outward)
        finally:
            outward.cancel()
            ends = await asyncio.gather(outward, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end
    await conversation.send({"recorded": True})


async def _pass_in(inner: FileConversation, conversation: RemoteConversation, outward: asyncio.Task[None]) -> None:
    """Until the client has nothing more to ask, or the service has ended."""
    while not outward.done():
        receiving = asyncio.ensure_future(conversation.receive())
        await asyncio.wait([receiving, outward], return_when=asyncio.FIRST_COMPLETED)
        if not receiving.done():
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
            return
        message = receiving.result()
        if message is None:
            return
        request = message.header.get("file")
        if not isinstance(request, dict):
            raise FrameError("a message that is not for the file service")
        await inner.send(request, message.body)  # pyright: ignore[reportUnknownArgumentType] - the gate judges it


async def _pass_out(inner: FileConversation, conversation: RemoteConversation) -> None:
    while True:
        header, body = await inner.receive()
        await conversation.send({"file": header}, body)


HANDLERS: Handlers = {"files": converse}
