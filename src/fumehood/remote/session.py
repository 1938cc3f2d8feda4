"""A session in a sandbox that is elsewhere."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import Self, Unpack

from fumehood.errors import UsageError
from fumehood.events import Event
from fumehood.guest.contract.frames import Header
from fumehood.policy import Policy
from fumehood.remote import calls
from fumehood.remote.conversations import Conversations
from fumehood.results import RunResult
from fumehood.sandbox.request import RunOptions, make_session_request, options_of_runs


class RemoteSession:
    """As `AsyncSession`."""

    def __init__(self, conversations: Conversations, policy: Policy) -> None:
        self._conversations, self._policy = conversations, policy
        self._number: int | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        await self._opened()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @options_of_runs()
    async def run(self, code: str | bytes, **options: Unpack[RunOptions]) -> RunResult:
        await self._opened()
        make_session_request(self._policy, code, options)
        return await calls.run(self._conversations, self._header("run"), code, options)

    @options_of_runs()
    async def stream(self, code: str | bytes, **options: Unpack[RunOptions]) -> AsyncGenerator[Event, None]:
        await self._opened()
        make_session_request(self._policy, code, options)
        async with aclosing(calls.stream_run(self._conversations, self._header("stream"), code, options)) as events:
            async for event in events:
                yield event

    async def interrupt(self) -> None:
        if self._number is not None:
            await calls.ask(self._conversations, self._header("interrupt"))

    async def restart(self) -> None:
        if self._number is not None:
            await calls.ask(self._conversations, self._header("restart"))

    async def close(self) -> None:
        if not self._is_closed and self._number is not None:
            self._is_closed = True
            await calls.ask(self._conversations, self._header("close"))
        self._is_closed = True

    async def _opened(self) -> None:
        if self._is_closed:
            raise UsageError("the session is closed; open another one with `async with box.session() as session:`")
        if self._number is None:
            message = await calls.ask(self._conversations, {"do": "session.open"})
            self._number = message.header["opened"]

    def _header(self, what: str) -> Header:
        return {"do": f"session.{what}", "part": self._number}
