"""A run in the background of a sandbox that is elsewhere."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator

from fumehood.events import Event
from fumehood.guest.contract.frames import Header
from fumehood.policy import Seconds
from fumehood.remote import calls
from fumehood.remote.conversations import Conversations
from fumehood.results import RunResult
from fumehood.sandbox.background import NewOutput


class RemoteBackgroundRun:
    """As `AsyncBackgroundRun`."""

    def __init__(self, conversations: Conversations, number: int) -> None:
        self._conversations, self._number = conversations, number
        self.is_concluded = False
        """Whether it is known here that it is over."""

    async def poll(self) -> RunResult | None:
        result = await calls.ask_for_result(self._conversations, self._header("poll"))
        self.is_concluded = result is not None
        return result

    async def read(self, *, wait: Seconds = 0) -> NewOutput:
        message = await calls.ask(self._conversations, self._header("read", wait=wait))
        size = message.header["stdout"]
        return NewOutput(message.body[:size], message.body[size:])

    def stream(self) -> AsyncGenerator[Event, None]:
        return calls.stream(self._conversations, self._header("stream"))

    async def wait(self) -> RunResult:
        return await self._result("wait")

    async def write(self, data: bytes | str) -> None:
        content = data.encode() if isinstance(data, str) else data
        await calls.ask(self._conversations, self._header("write"), content)

    async def close_stdin(self) -> None:
        await calls.ask(self._conversations, self._header("close_stdin"))

    async def send_signal(self, number: int | signal.Signals) -> None:
        await calls.ask(self._conversations, self._header("send_signal", signal=int(number)))

    async def resize(self, columns: int, rows: int) -> None:
        await calls.ask(self._conversations, self._header("resize", columns=columns, rows=rows))

    async def kill(self) -> RunResult:
        return await self._result("kill")

    async def _result(self, what: str) -> RunResult:
        result = await calls.wait_for_result(self._conversations, self._header(what))
        self.is_concluded = True
        return result

    def _header(self, what: str, **details: object) -> Header:
        return {"do": f"background.{what}", "part": self._number, **details}
