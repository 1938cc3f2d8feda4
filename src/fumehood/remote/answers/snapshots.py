"""Calls that keep the workspace."""

from __future__ import annotations

from dataclasses import asdict

from fumehood.remote.answers.parts import Answers, Parts
from fumehood.remote.conversations import ConversationMessage, RemoteConversation
from fumehood.snapshots import Snapshot


async def snapshot(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await _send(conversation, await parts.box.snapshot(message.header.get("name")))


async def save(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await _send(conversation, await parts.box.save())


async def _send(conversation: RemoteConversation, made: Snapshot) -> None:
    await conversation.send({"snapshot": asdict(made)})


ANSWERS: Answers = {"snapshot": snapshot, "save": save}
