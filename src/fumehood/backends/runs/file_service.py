"""The file services of a sandbox: started when they are needed, one for each exchange that goes on at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from fumehood.backends.conversation import SocketConversation
from fumehood.backends.runs.descriptors import RunDescriptors


class FileService:
    """The file service: a process in the sandbox that reads and writes files. It ends when its reply socket closes."""

    def __init__(self, descriptors: RunDescriptors, patience_seconds: float) -> None:
        assert descriptors.link is not None
        self._reply = descriptors.reply
        self.conversation = SocketConversation(descriptors.link, patience_seconds=patience_seconds)

    def close(self) -> None:
        self.conversation.close()
        self._reply.close()


class FileServices:
    """Keeps one that has nothing to do: most callers come back."""

    def __init__(self, start: Callable[[], Awaitable[FileService]], on_silence: Callable[[], Awaitable[None]]) -> None:
        """`on_silence` is called when a service did not answer in time."""
        self._start = start
        self._on_silence = on_silence
        self._idle: FileService | None = None
        self._is_closed = False

    @asynccontextmanager
    async def converse(self) -> AsyncIterator[SocketConversation]:
        service, self._idle = self._idle, None
        service = service or await self._start()
        is_whole = False
        try:
            yield service.conversation
            is_whole = not service.conversation.is_abandoned
        finally:
            # One that was left in the middle of an exchange would answer the next caller with this one's data.
            if is_whole and self._idle is None and not self._is_closed:
                self._idle = service
            else:
                service.close()
            if service.conversation.is_silent:
                await self._on_silence()

    def close(self) -> None:
        self._is_closed = True
        if self._idle:
            self._idle.close()
            self._idle = None
