"""How results and events are sent."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from fumehood.events import Event, Finished, Stderr, Stdout
from fumehood.remote.conversations import RemoteConversation
from fumehood.remote.values import pack_display, pack_result
from fumehood.results import Display, RunResult


async def send_result(conversation: RemoteConversation, result: RunResult | None) -> None:
    if result is None:
        await conversation.send({"result": None}, is_last=True)
        return
    header, body = pack_result(result)
    await conversation.send({"result": header}, body, is_last=True)


async def send_events(conversation: RemoteConversation, events: AsyncGenerator[Event, None]) -> None:
    async with aclosing(events):
        async for event in events:
            await _send_event(conversation, event)


async def _send_event(conversation: RemoteConversation, event: Event) -> None:
    match event:
        case Stdout(data):
            await conversation.send({"stdout": True}, data)
        case Stderr(data):
            await conversation.send({"stderr": True}, data)
        case Display():
            header, body = pack_display(event)
            await conversation.send({"display": header}, body)
        case Finished(result):
            await send_result(conversation, result)
