"""Ports of a sandbox, through the server: HTTP requests to what listens inside, where the policy publishes the port.

The published port of the sandbox (`ingress`) wants a token of its own and checks each message; this passes requests on
to it, for those who have the sandbox's token.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import urlsplit

import h11
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from fumehood.policy.quantities import GIB, KIB
from fumehood.remote.ports import RemoteExposedPort
from fumehood.sandbox.ports import AsyncExposedPort
from fumehood.server.e2b.bodies import chunks_of
from fumehood.server.e2b.errors import NotHereError
from fumehood.server.sandboxes.placement import PlacedSandbox

_READ_BYTES = 64 * KIB
_ANSWER_SECONDS = 300.0
_OURS = frozenset(
    {b"host", b"x-api-key", b"x-access-token", b"e2b-traffic-access-token", b"e2b-sandbox-id", b"e2b-sandbox-port"}
)
_OF_HOP = frozenset({b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect"})
_PASSED_ON = frozenset({b"proxy-authorization", b"proxy-connection", b"content-length"})
_Headers = list[tuple[bytes, bytes]]
ExposedPort = AsyncExposedPort | RemoteExposedPort


class Ports:
    def __init__(self, box: PlacedSandbox) -> None:
        self._box = box
        self._exposed: dict[int, ExposedPort] = {}
        self._turn = asyncio.Lock()

    async def address_of(self, port: int) -> ExposedPort:
        """DeniedError unless the policy publishes the port."""
        async with self._turn:
            exposed = self._exposed.get(port)
            if exposed is None or not exposed.is_open:
                exposed = self._exposed[port] = await self._box.expose(port)
            return exposed


async def forward(exposed: ExposedPort, request: Request) -> Response:
    if "upgrade" in request.headers.get("connection", "").lower():
        raise NotHereError("WebSockets to ports of a sandbox do not go through here; plain requests do")
    exchange = await _Exchange.begin(exposed)
    try:
        status, headers = await exchange.ask(request, exposed)
    except BaseException:
        exchange.close()
        raise
    response = StreamingResponse(exchange.body(), status)
    response.raw_headers = [(name, value) for name, value in headers if name not in _OF_HOP]
    return response


class _Exchange:
    """One request and its answer, over one connection to the host's own loopback."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._protocol = h11.Connection(h11.CLIENT)

    @classmethod
    async def begin(cls, exposed: ExposedPort) -> _Exchange:
        address = urlsplit(exposed.address)
        return cls(*await asyncio.open_connection(address.hostname, address.port))

    async def ask(self, request: Request, exposed: ExposedPort) -> tuple[int, _Headers]:
        target: bytes = request.scope["raw_path"]
        query: bytes = request.scope["query_string"]
        await self._send(
            h11.Request(
                method=request.method,
                target=target + (b"?" + query if query else b""),
                headers=_headers(request, exposed),
            )
        )
        async with aclosing(chunks_of(request, GIB, _ANSWER_SECONDS)) as chunks:
            async for chunk in chunks:
                await self._send(h11.Data(data=chunk))
        await self._send(h11.EndOfMessage())
        async with asyncio.timeout(_ANSWER_SECONDS):
            while not isinstance(event := await self._next(), h11.Response):
                pass
        return event.status_code, list(event.headers.raw_items())

    async def body(self) -> AsyncGenerator[bytes, None]:
        try:
            while isinstance(event := await self._next(), h11.Data):
                yield bytes(event.data)
        finally:
            self.close()

    def close(self) -> None:
        self._writer.close()

    async def _send(self, event: h11.Event) -> None:
        data = self._protocol.send(event)
        if data:
            self._writer.write(data)
            await self._writer.drain()

    async def _next(self) -> h11.Event | type[h11.PAUSED]:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            self._protocol.receive_data(await self._reader.read(_READ_BYTES))
        return event  # pyright: ignore[reportReturnType]


def _headers(request: Request, exposed: ExposedPort) -> _Headers:
    dropped = _OURS | _OF_HOP | _PASSED_ON
    kept = [(name, value) for name, value in request.headers.raw if name not in dropped]
    own = [(name.encode(), value.encode()) for name, value in exposed.headers.items()]
    length = request.headers.get("content-length")
    if length is not None:
        framing = [(b"content-length", length.encode())]
    else:
        framing = [(b"transfer-encoding", b"chunked")] if "transfer-encoding" in request.headers else []
    return [(b"host", urlsplit(exposed.address).netloc.encode()), *kept, *own, *framing, (b"connection", b"close")]
