"""Calls of the sandbox itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict

from fumehood.guest.contract.frames import FrameError
from fumehood.remote.assembly import ConversationMessage
from fumehood.remote.conversations import RemoteConversation
from fumehood.remote.feed import received_input
from fumehood.remote.handlers.parts import Handlers, Parts, number
from fumehood.remote.handlers.results import send_events, send_result
from fumehood.remote.options import LIVE, unpack_request
from fumehood.remote.policies import pack_policy
from fumehood.sandbox.installation import Installation
from fumehood.sandbox.request import RunOptions


async def run(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    async with _request(conversation, message) as (code, options):
        await send_result(conversation, await parts.box.run(code, **options))


async def stream(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    async with _request(conversation, message) as (code, options):
        await send_events(conversation, parts.box.stream(code, **options))


@asynccontextmanager
async def _request(
    conversation: RemoteConversation, message: ConversationMessage
) -> AsyncIterator[tuple[bytes | None, RunOptions]]:
    code, options = unpack_request(*message)
    if message.header.get("stdin") != LIVE:
        yield code, options
        return
    async with received_input(conversation) as descriptor:
        yield code, {**options, "stdin": descriptor}


async def send_signal(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await parts.box.send_signal(number(message.header, "signal"))
    await conversation.send({})


async def install(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    packages = message.header.get("packages")
    if not isinstance(packages, list):
        raise FrameError("packages are not a list")
    lines: asyncio.Queue[str | None] = asyncio.Queue(_MOST_LINES)
    loop = asyncio.get_running_loop()

    def show(line: str) -> None:
        """Called from any thread; of more lines than the client reads, some are not shown."""
        loop.call_soon_threadsafe(_offer, lines, line)

    work = asyncio.ensure_future(
        parts.box.install(*packages, allow_sdists=bool(message.header.get("allow_sdists")), progress=show)  # pyright: ignore[reportUnknownArgumentType] - checked by the sandbox
    )
    work.add_done_callback(lambda _: _offer(lines, None))
    try:
        while not work.done() or not lines.empty():
            line = await lines.get()
            if line is not None:
                await conversation.send({"progress": line})
        await _send_installation(conversation, work.result())
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


_MOST_LINES = 100


def _offer(lines: asyncio.Queue[str | None], line: str | None) -> None:
    if lines.full():
        lines.get_nowait()
    lines.put_nowait(line)


async def _send_installation(conversation: RemoteConversation, done: Installation) -> None:
    await conversation.send({"installation": asdict(done)})


async def change_policy(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await parts.owner.change_policy(message.header.get("policy"))
    await conversation.send({"policy": pack_policy(parts.box.policy)})


async def close(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await parts.close(bool(message.header.get("failing")))
    await conversation.send({})


HANDLERS: Handlers = {
    "run": run,
    "stream": stream,
    "send_signal": send_signal,
    "install": install,
    "change_policy": change_policy,
    "close": close,
}
