"""Calls that keep the workspace."""

from __future__ import annotations

from dataclasses import asdict

from fumehood.remote.answers.parts import Answers, Parts
from fumehood.remote.conversations import Conversation, Message
from fumehood.snapshots import Snapshot


async def snapshot(parts: Parts, conversation: Conversation, message: Message) -> None:
    await _send(conversation, await parts.box.snapshot(message.header.get("name")))


async def save(parts: Parts, conversation: Conversation, message: Message) -> None:
    await _send(conversation, await parts.box.save())


async def _send(conversation: Conversation, made: Snapshot) -> None:
    await conversation.send({"snapshot": asdict(made)})


ANSWERS: Answers = {"snapshot": snapshot, "save": save}
