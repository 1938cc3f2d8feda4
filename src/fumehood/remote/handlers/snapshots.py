"""Calls that keep the workspace, or copy it."""

from __future__ import annotations

from dataclasses import asdict

from fumehood.remote.assembly import ConversationMessage
from fumehood.remote.conversations import RemoteConversation
from fumehood.remote.handlers.parts import Handlers, Parts, number, text
from fumehood.snapshots import Snapshot


async def snapshot(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    name = None if message.header.get("name") is None else text(message.header, "name")
    await _send(conversation, await parts.box.snapshot(name))


async def save(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await _send(conversation, await parts.box.save())


async def fork(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await conversation.send({"forks": await parts.owner.fork(number(message.header, "count"))})


async def _send(conversation: RemoteConversation, made: Snapshot) -> None:
    await conversation.send({"snapshot": asdict(made)})


HANDLERS: Handlers = {"snapshot": snapshot, "save": save, "fork": fork}
