"""Calls of a server about the workspace of a sandbox on a worker: all of it, to be kept by the server.

Clients of a server cannot make them: what leaves a sandbox for a client is judged by `filesystem.outputs`.
"""

from __future__ import annotations

from fumehood.remote.assembly import ConversationMessage
from fumehood.remote.conversations import RemoteConversation
from fumehood.remote.handlers.files import pass_through
from fumehood.remote.handlers.parts import Handlers, Parts, text
from fumehood.sandbox.async_sandbox import AsyncSandbox

CONVERSE, RESTORE = "workspace", "workspace.restore"
CHECK_REST, END_PROGRAMS = "workspace.rest", "workspace.end"


def _box(parts: Parts) -> AsyncSandbox:
    assert isinstance(parts.box, AsyncSandbox), "a worker has its sandboxes itself"
    return parts.box


async def converse(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await pass_through(_box(parts).workspace.converse(), conversation)


async def restore(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await pass_through(_box(parts).workspace.restore(), conversation)


async def check_rest(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await conversation.send({"sessions": _box(parts).workspace.check_rest(text(message.header, "what"))})


async def end_programs(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await _box(parts).workspace.end_programs()
    await conversation.send({"sessions": 0})


HANDLERS: Handlers = {CONVERSE: converse, RESTORE: restore, CHECK_REST: check_rest, END_PROGRAMS: end_programs}
