"""The WebSocket through which a client has a sandbox: opens one or comes back to one, and passes messages on."""

from __future__ import annotations

from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from fumehood.guest.contract import frames
from fumehood.guest.contract.frames import FrameError, Header
from fumehood.remote.carrier import CarrierLostError

PROTOCOL = 1


class WebSocketCarrier:
    """The server's end of a WebSocket, as a carrier."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def send(self, data: bytes) -> None:
        try:
            await self._socket.send_bytes(data)
        except (WebSocketDisconnect, RuntimeError) as error:
            raise CarrierLostError("the client has hung up") from error

    async def receive(self) -> bytes:
        try:
            return await self._socket.receive_bytes()
        except (WebSocketDisconnect, RuntimeError, KeyError) as error:
            raise CarrierLostError("the client has hung up") from error

    async def close(self) -> None:
        await self._socket.close()


async def receive_first(carrier: WebSocketCarrier) -> Header:
    """The client's first message: what it wants."""
    decoder = frames.Decoder(0, 64 * 1024)
    decoder.feed(await carrier.receive())
    message = decoder.next()
    if message is None:
        raise FrameError("a first message that is not whole")
    return message[0]


async def send_first(carrier: WebSocketCarrier, **answer: Any) -> None:
    await carrier.send(frames.encode(answer))
