"""The way of a request's body to a server, and of the response back to the client, written anew on the way.

The gateway's exchange uses it for requests that leave a sandbox, and a published port for those that enter one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from fumehood.egress.credentials import Redactor
from fumehood.egress.http1 import (
    Body,
    Headers,
    HttpRequest,
    HttpResponse,
    MalformedMessageError,
    MessageReader,
    framing,
    parse_response,
    serialise,
)
from fumehood.egress.limits import GatewayLimits, MemoryUsedUpError
from fumehood.egress.log import UnreachableError
from fumehood.egress.streams import Stream
from fumehood.egress.websocket import UPGRADE, asks_for_websocket, opens_websocket

_MOST_INTERIM_RESPONSES = 32


class Forwarder:
    """For one client. `inspect` sees what is about to go to a server; `hang_up` leaves a server in the middle."""

    def __init__(
        self,
        client: MessageReader,
        limits: GatewayLimits,
        inspect: Callable[[bytes], None],
        hang_up: Callable[[], None],
    ) -> None:
        self._client, self._limits, self._inspect, self._hang_up = client, limits, inspect, hang_up
        self.has_answered = False
        """A part of the response is out."""

    async def response(self, server: MessageReader, request: HttpRequest) -> HttpResponse:
        """The final response, or 101; what comes before it is passed on."""
        for _ in range(_MOST_INTERIM_RESPONSES):
            response = await self._read_response(server, request.method)
            if response.status >= 200:
                return response
            if response.status == 101:
                if not asks_for_websocket(request) or not opens_websocket(request, response):
                    raise UnreachableError("the server changed the protocol in another way than it was asked to")
                return response
            if request.version == 1 and response.status in (102, 103):
                phrase = HTTPStatus(response.status).phrase
                await self._client.stream.write(serialise(f"HTTP/1.1 {response.status} {phrase}", []))
        raise UnreachableError("the server sends one preliminary response after the other")

    async def _read_response(self, server: MessageReader, method: str) -> HttpResponse:
        idle = self._limits.idle_seconds
        try:
            head = await server.head(self._limits.hello_seconds, idle_seconds=idle)
            if head is None:
                raise UnreachableError("the server closed the connection without a response")
            return parse_response(head, method)
        except MalformedMessageError as error:
            raise UnreachableError(f"the response of the server is malformed: {error}") from None
        except MemoryUsedUpError:
            raise
        except (OSError, TimeoutError):
            raise UnreachableError("the server broke off its response") from None

    async def pass_back(
        self,
        server: MessageReader,
        request: HttpRequest,
        response: HttpResponse,
        headers: Headers,
        redactor: Redactor,
    ) -> None:
        """The response, with these headers and those that say where its body ends."""
        body = Body.UNTIL_CLOSE if request.version == 0 and response.body is Body.CHUNKED else response.body
        headers = headers + (_kept_length(request, response) or framing(body, always=_may_have_body(request, response)))
        if not request.keeps_alive or body is Body.UNTIL_CLOSE:
            headers.append(("Connection", "close"))
        self.has_answered = True
        waiting = redactor.head(serialise(f"HTTP/1.1 {response.status} {response.reason}", headers))
        if server.is_empty:
            # The body may take its time; the client need not wait to hear that it comes.
            await self._client.stream.write(waiting)
            waiting = b""
        async for piece in _redacted_body(server.body(response.body), redactor):
            await self._client.stream.write(waiting + _chunk(piece) if body is Body.CHUNKED else waiting + piece)
            waiting = b""
        waiting += b"0\r\n\r\n" if body is Body.CHUNKED else b""
        if waiting:
            await self._client.stream.write(waiting)

    async def switch(self, server: MessageReader, headers: Headers, redactor: Redactor) -> None:
        """A WebSocket from here on: the request for it was judged, what is said on it is not read."""
        self.has_answered = True
        head = redactor.head(serialise("HTTP/1.1 101 Switching Protocols", [*headers, *UPGRADE]))
        await self._client.stream.write(head + server.rest())
        await server.stream.write(self._client.rest())
        ways = [
            asyncio.ensure_future(_copy(self._client.stream, server.stream)),
            asyncio.ensure_future(_copy(server.stream, self._client.stream)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    @asynccontextmanager
    async def uploading(self, server: Stream, body: int | Body) -> AsyncIterator[asyncio.Task[bool] | None]:
        """A body on its way out, while the response may already be on its way in."""
        if body == 0:
            yield None
            return
        task = asyncio.ensure_future(self._upload(server, body))
        try:
            yield task
        finally:
            if not task.done():
                task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()  # if the client's body was at fault, that is what ended the response

    async def _upload(self, server: Stream, body: int | Body) -> bool:
        """Whether the server took all of it; it may have its answer ready before."""
        try:
            async for piece in self._client.body(body):
                self._inspect(piece)
                if not await _delivered(server, _chunk(piece) if body is Body.CHUNKED else piece):
                    return False
            return body is not Body.CHUNKED or await _delivered(server, b"0\r\n\r\n")
        except Exception:
            # No server answers half a request.
            self._hang_up()
            raise


async def _delivered(server: Stream, data: bytes) -> bool:
    try:
        await server.write(data)
    except OSError:
        return False
    return True


async def _copy(source: Stream, sink: Stream) -> None:
    while data := await source.read():
        await sink.write(data)


async def _redacted_body(pieces: AsyncIterator[bytes], redactor: Redactor) -> AsyncIterator[bytes]:
    try:
        async for piece in pieces:
            if clean := redactor.feed(piece):
                yield clean
    except MalformedMessageError as error:
        raise UnreachableError(f"the response of the server is malformed: {error}") from None
    if rest := redactor.end():
        yield rest


def _kept_length(request: HttpRequest, response: HttpResponse) -> Headers:
    """The Content-Length header of a response without a body, which has the length that the body would have had."""
    if request.method != "HEAD" and response.status != 304:
        return []
    return [(name, value) for name, value in response.headers if name.lower() == "content-length"]


def _may_have_body(request: HttpRequest, response: HttpResponse) -> bool:
    return request.method != "HEAD" and response.status not in (204, 304)


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)
