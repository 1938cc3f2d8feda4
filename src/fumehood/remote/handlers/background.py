"""Calls of runs in the background."""

from __future__ import annotations

from fumehood.guest.contract.frames import FrameError, Header
from fumehood.remote.assembly import ConversationMessage
from fumehood.remote.conversations import RemoteConversation
from fumehood.remote.handlers.parts import Handlers, Parts, ServedRun, find, number
from fumehood.remote.handlers.results import send_events, send_result
from fumehood.remote.options import unpack_request


async def start(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    code, options = unpack_request(*message)
    parts.forget_concluded()
    parts.check_room(parts.runs)
    run = await parts.box.start(code, terminal=_size(message.header), **options)
    await conversation.send({"started": parts.add(parts.runs, run)})


def _size(header: Header) -> tuple[int, int] | None:
    match header.get("terminal"):
        case None:
            return None
        case [int(columns), int(rows)]:
            return columns, rows
        case _:
            raise FrameError("a terminal has columns and rows")


def _run(parts: Parts, message: ConversationMessage) -> ServedRun:
    return find(parts.runs, message.header, "run in the background")


async def poll(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await send_result(conversation, await _run(parts, message).poll())


async def read(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    output = await _run(parts, message).read(wait=message.header.get("wait") or 0)
    await conversation.send({"stdout": len(output.stdout)}, output.stdout + output.stderr)


async def stream(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await send_events(conversation, _run(parts, message).stream())


async def wait(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await send_result(conversation, await _run(parts, message).wait())


async def write(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await _run(parts, message).write(message.body)
    await conversation.send({})


async def close_stdin(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await _run(parts, message).close_stdin()
    await conversation.send({})


async def send_signal(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await _run(parts, message).send_signal(number(message.header, "signal"))
    await conversation.send({})


async def resize(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await _run(parts, message).resize(number(message.header, "columns"), number(message.header, "rows"))
    await conversation.send({})


async def kill(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await send_result(conversation, await _run(parts, message).kill())


HANDLERS: Handlers = {
    "start": start,
    "background.poll": poll,
    "background.read": read,
    "background.stream": stream,
    "background.wait": wait,
    "background.write": write,
    "background.close_stdin": close_stdin,
    "background.send_signal": send_signal,
    "background.resize": resize,
    "background.kill": kill,
}
