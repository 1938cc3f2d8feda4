"""A sandbox that is elsewhere, with the methods of one that is here."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator, Mapping
from typing import Unpack

from fumehood.events import Event
from fumehood.policy import Policy
from fumehood.remote import calls
from fumehood.remote.background import RemoteBackgroundRun
from fumehood.remote.conversations import Conversations
from fumehood.remote.files import RemoteFiles
from fumehood.remote.options import pack_request
from fumehood.remote.session import RemoteSession
from fumehood.results import RunResult
from fumehood.sandbox.request import RunOptions, options_of_runs


class RemoteSandbox:
    """As `AsyncSandbox`, once it is open. The policy, its enforcement and the audit log are where the code runs."""

    def __init__(self, conversations: Conversations, policy: Policy, enforcement: Mapping[str, str]) -> None:
        self._conversations = conversations
        self.policy, self.enforcement = policy, enforcement
        self.files = RemoteFiles(conversations)

    @options_of_runs()
    async def run(self, code: str | bytes | None = None, **options: Unpack[RunOptions]) -> RunResult:
        return await calls.run(self._conversations, {"do": "run"}, code, options)

    @options_of_runs()
    async def stream(
        self, code: str | bytes | None = None, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[Event, None]:
        request, body = pack_request(code, options)
        async for event in calls.events(self._conversations, {"do": "stream"} | request, body):
            yield event

    @options_of_runs()
    async def start(
        self, code: str | bytes | None = None, *, terminal: tuple[int, int] | None = None, **options: Unpack[RunOptions]
    ) -> RemoteBackgroundRun:
        request, body = pack_request(code, options)
        message = await calls.ask(self._conversations, {"do": "start", "terminal": terminal} | request, body)
        return RemoteBackgroundRun(self._conversations, message.header["started"])

    def session(self) -> RemoteSession:
        return RemoteSession(self._conversations)

    async def send_signal(self, number: int | signal.Signals) -> None:
        await calls.ask(self._conversations, {"do": "send_signal", "signal": int(number)})
