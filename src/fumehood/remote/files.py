"""Files of a sandbox that is elsewhere: its file service, reached through the server.

The methods are those of a local sandbox, which speak to the service in the same words. What the policy lets out is
judged here for the sake of early errors, and by the server for everything else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fumehood.errors import SandboxError
from fumehood.remote import calls
from fumehood.remote.conversations import Conversations, RemoteConversation


class RemoteFileService:
    """As the conversation with a service in a sandbox that is here."""

    def __init__(self, conversation: RemoteConversation) -> None:
        self._conversation = conversation

    async def send(self, header: Mapping[str, Any], body: bytes | memoryview = b"") -> None:
        with calls.named_loss():
            await self._conversation.send({"file": dict(header)}, bytes(body))

    async def receive(self) -> tuple[dict[str, Any], bytes]:
        with calls.named_loss():
            message = await calls.next_answer(self._conversation)
        if message is None or "file" not in message.header:
            raise SandboxError("the file service of the sandbox is gone")
        return message.header["file"], message.body

    def abandon(self) -> None:
        self._conversation.abandon()


@asynccontextmanager
async def open_file_service(conversations: Conversations, call: str = "files") -> AsyncIterator[RemoteFileService]:
    """When the block is left without an error, everything in it is on record at the server."""
    async with calls.begin(conversations, {"do": call}) as conversation:
        await calls.next_answer(conversation)
        service = RemoteFileService(conversation)
        yield service
        if not conversation.is_over:
            conversation.end()
            while await calls.next_answer(conversation) is not None:
                pass
