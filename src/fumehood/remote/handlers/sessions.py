"""Calls of sessions."""

from __future__ import annotations

from fumehood.remote.assembly import ConversationMessage
from fumehood.remote.conversations import RemoteConversation
from fumehood.remote.handlers.parts import Handlers, Parts, ServedSession, find
from fumehood.remote.handlers.results import send_events, send_result
from fumehood.remote.options import unpack_request


async def open_session(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    parts.check_room(parts.sessions)
    session = parts.box.session()
    number = parts.add(parts.sessions, session)
    try:
        await session.__aenter__()
    except BaseException:
        del parts.sessions[number]
        raise
    await conversation.send({"opened": number})


def _session(parts: Parts, message: ConversationMessage) -> ServedSession:
    return find(parts.sessions, message.header, "session")


async def run(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    code, options = unpack_request(*message)
    await send_result(conversation, await _session(parts, message).run(code or b"", **options))


async def stream(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    code, options = unpack_request(*message)
    await send_events(conversation, _session(parts, message).stream(code or b"", **options))


async def interrupt(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await _session(parts, message).interrupt()
    await conversation.send({})


async def restart(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await _session(parts, message).restart()
    await conversation.send({})


async def close(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await _session(parts, message).close()
    del parts.sessions[message.header["part"]]
    await conversation.send({})


HANDLERS: Handlers = {
    "session.open": open_session,
    "session.run": run,
    "session.stream": stream,
    "session.interrupt": interrupt,
    "session.restart": restart,
    "session.close": close,
}
