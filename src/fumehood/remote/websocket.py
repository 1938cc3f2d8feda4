"""A WebSocket as a carrier, at the client's end."""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING

from fumehood.errors import UsageError
from fumehood.remote.carrier import CarrierLostError

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

_MAX_MESSAGE_BYTES = 512 * 1024
_MAX_PROBLEM_BYTES = 64 * 1024
_OPEN_SECONDS = 10
_PING_SECONDS = 20


class HandshakeError(Exception):
    """The server answered with a status instead of a WebSocket."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"the server answered {status}")
        self.status, self.detail = status, _detail(body)


def _detail(body: bytes) -> str:
    """What a problem says of itself; empty for anything else, such as the page of a proxy."""
    try:
        problem = json.loads(body[:_MAX_PROBLEM_BYTES])
    except ValueError:
        return ""
    detail: object = problem.get("detail") if isinstance(problem, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - checked below
    return detail if isinstance(detail, str) else ""


class ClientWebSocket:
    """`closed` is the library's exception for a connection that is over: importing it for each message takes longer
    than the rest.
    """

    def __init__(self, socket: ClientConnection, closed: type[Exception]) -> None:
        self._socket, self._closed = socket, closed

    async def send(self, data: bytes) -> None:
        try:
            await self._socket.send(data)
        except self._closed as error:
            raise CarrierLostError(str(error)) from error

    async def receive(self) -> bytes:
        try:
            return await self._socket.recv(decode=False)
        except self._closed as error:
            raise CarrierLostError(str(error)) from error

    async def close(self) -> None:
        await self._socket.close()


async def dial(url: str, key: str, context: ssl.SSLContext | None) -> ClientWebSocket:
    """CarrierLostError if the server cannot be reached now, HandshakeError if it does not want this client."""
    try:
        from websockets.asyncio.client import connect
        from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
    except ModuleNotFoundError as error:
        raise UsageError("sandboxes at a server need websockets: pip install 'fumehood[remote]'") from error

    address = url.replace("http", "ws", 1).rstrip("/") + "/v1/channel"
    try:
        socket = await connect(
            address,
            additional_headers={"Authorization": f"Bearer {key}"},
            compression=None,
            max_size=_MAX_MESSAGE_BYTES,
            max_queue=16,
            open_timeout=_OPEN_SECONDS,
            ping_interval=_PING_SECONDS,
            ping_timeout=_PING_SECONDS,
            ssl=context,
            proxy=None,
        )
    except InvalidStatus as error:
        raise HandshakeError(error.response.status_code, bytes(error.response.body or b"")) from error
    except (OSError, TimeoutError, InvalidHandshake) as error:
        raise CarrierLostError(f"{url} cannot be reached: {error}") from error
    return ClientWebSocket(socket, ConnectionClosed)
