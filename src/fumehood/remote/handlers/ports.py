"""Calls of published ports: their addresses are the client's, and who may ask is decided here."""

from __future__ import annotations

import asyncio
import socket

from fumehood.guest.contract.frames import FrameError
from fumehood.remote.assembly import ConversationMessage
from fumehood.remote.conversations import RemoteConversation
from fumehood.remote.handlers.parts import Handlers, Parts, ServedPort, find, number
from fumehood.remote.tunnel import carry_from_port


async def open_port(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    client_port = number(message.header, "client_port")
    if not 0 < client_port < 65536:
        raise FrameError("client_port is not a port")
    parts.forget_closed_ports()
    parts.check_room(parts.ports)
    port = await parts.box.expose_to(number(message.header, "port"), client_port)
    answer = {"url": port.url, "address": port.address, "headers": dict(port.headers)}
    await conversation.send({"opened": parts.add(parts.ports, port), **answer})


def _port(parts: Parts, message: ConversationMessage) -> ServedPort:
    return find(parts.ports, message.header, "published port")


async def wait(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    """For as long as the client does."""
    await _port(parts, message).wait_ready(timeout=None)
    await conversation.send({})


async def connect(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    port = _port(parts, message)
    ours, theirs = socket.socketpair()
    try:
        reader, writer = await asyncio.open_connection(sock=ours)
    except BaseException:
        theirs.close()
        raise
    try:
        port.admit(theirs)
        await conversation.send({})
        await carry_from_port(conversation, reader, writer)
    finally:
        writer.close()


async def close(parts: Parts, conversation: RemoteConversation, message: ConversationMessage) -> None:
    await _port(parts, message).close()
    del parts.ports[message.header["part"]]
    await conversation.send({})


HANDLERS: Handlers = {
    "port.open": open_port,
    "port.wait": wait,
    "port.connect": connect,
    "port.close": close,
}
