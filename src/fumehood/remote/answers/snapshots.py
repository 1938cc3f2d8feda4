"""Calls that keep the workspace, or copy it."""

from __future__ import annotations

from dataclasses import asdict

from fumehood.remote.answers.parts import Answers, Parts, number, text
from fumehood.remote.conversations import ConversationMessage, RemoteConversation
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


ANSWERS: Answers = {"snapshot": snapshot, "save": save, "fork": fork}
