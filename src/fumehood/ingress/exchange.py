"""The requests of one client of a published port, one after the other.

Each is judged and written anew, and has a connection to the server inside of its own: no byte of one request can
become a part of another there.
"""

from __future__ import annotations

import contextlib
import html
import socket
from collections.abc import Awaitable, Callable

from fumehood.egress.credentials import Redactor
from fumehood.egress.forwarder import Forwarder
from fumehood.egress.http1 import (
    Body,
    CutOffError,
    Headers,
    HttpRequest,
    MalformedMessageError,
    MessageReader,
    framing,
    parse_request,
    serialise,
)
from fumehood.egress.limits import GatewayLimits, SandboxMemory
from fumehood.egress.log import UnreachableError
from fumehood.egress.streams import PlainStream, silence
from fumehood.egress.websocket import UPGRADE, asks_for_websocket
from fumehood.ingress.access import TOKEN_HEADER, Access, Admitted, Refused, Welcome, returned
from fumehood.ingress.log import PortLog

_KEEP_ALIVE_SECONDS = 60.0
_REASONS = {200: "OK", 303: "See Other", 400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway"}
# Nothing of ours is kept or shown elsewhere: the address of the first visit holds the token.
_PRIVATE: Headers = [
    ("Cache-Control", "no-store"),
    ("Referrer-Policy", "no-referrer"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
]
_REFUSAL = "This is a port of a sandbox. It answers only at the address, or with the header, that has its token.\n"
Connect = Callable[[], Awaitable[PlainStream]]


class CountedStream(PlainStream):
    """A client's connection, with the number of bytes in each direction."""

    def __init__(self, connection: socket.socket, memory: SandboxMemory) -> None:
        super().__init__(connection, self._add, memory)
        self._moved = self._written = 0

    def take_counts(self) -> tuple[int, int]:
        """The bytes in and out since the last call."""
        moved, written = self._moved, self._written
        self._moved = self._written = 0
        return moved - written, written

    async def write(self, data: bytes) -> None:
        await super().write(data)
        self._written += len(data)

    def _add(self, moved: int) -> None:
        self._moved += moved


class PortExchange:
    """`connect` opens a connection to the server inside; `on_admitted` is called once a client has the token."""

    def __init__(
        self,
        client: CountedStream,
        access: Access,
        connect: Connect,
        limits: GatewayLimits,
        log: PortLog,
        on_admitted: Callable[[], None],
    ) -> None:
        self._access, self._connect, self._limits, self._log = access, connect, limits, log
        self._on_admitted = on_admitted
        self._client = MessageReader(client)
        self._stream = client
        self._server: PlainStream | None = None
        self._forwarder = Forwarder(self._client, limits, lambda _: None, self._hang_up)

    async def run(self) -> None:
        seconds = self._limits.hello_seconds
        idle_seconds = seconds
        while True:
            self._forwarder.has_answered = False
            try:
                head = await self._client.head(seconds, idle_seconds=idle_seconds)
                if head is None:
                    return
                goes_on = await self._decide(parse_request(head))
            except CutOffError:
                return
            except MalformedMessageError as error:
                await self._refuse(f"it could be read in two ways: {error}", 400)
                return
            if not goes_on:
                await self._stream.farewell()
                return
            idle_seconds = _KEEP_ALIVE_SECONDS

    async def _decide(self, request: HttpRequest) -> bool:
        """Whether another request may follow."""
        match self._access.decide(request):
            case Refused(reason):
                await self._refuse(reason, 403)
                return False
            case Welcome() as welcome:
                self._log.served(request.method, request.target, 303, 0, 0)
                await self._stream.write(_welcome(welcome))
                return False
            case Admitted() as admitted:
                self._on_admitted()
                return await self._serve(request, admitted)

    async def _refuse(self, reason: str, status: int) -> None:
        self._log.refused(reason)
        if self._forwarder.has_answered:
            raise ConnectionAbortedError
        await self._stream.farewell(_own_answer(status, _REFUSAL))

    async def _serve(self, request: HttpRequest, admitted: Admitted) -> bool:
        status = 502
        try:
            status, goes_on = await self._forward(request, admitted)
            return goes_on
        except UnreachableError as error:
            if self._forwarder.has_answered:
                raise ConnectionAbortedError from None
            await self._stream.write(_own_answer(502, f"The sandbox did not answer: {error}.\n"))
            return False
        finally:
            self._leave()
            method = "WEBSOCKET" if status == 101 else request.method
            self._log.served(method, admitted.target, status, *self._stream.take_counts())

    async def _forward(self, request: HttpRequest, admitted: Admitted) -> tuple[int, bool]:
        server = MessageReader(await self._reach())
        await server.stream.write(_request_head(request, admitted))
        if request.awaits_continue:
            await self._stream.write(serialise("HTTP/1.1 100 Continue", []))
        async with self._forwarder.uploading(server.stream, request.body) as upload:
            response = await self._forwarder.response(server, request)
            headers = returned(response.headers)
            if response.status == 101:
                self._log.served(request.method, admitted.target, 101, 0, 0)
                await self._forwarder.switch(server, headers, Redactor(()))
                return 101, False
            await self._forwarder.pass_back(server, request, response, headers, Redactor(()))
            is_finished = upload is None or (upload.done() and upload.result())
        return response.status, is_finished and request.keeps_alive and response.body is not Body.UNTIL_CLOSE

    async def _reach(self) -> PlainStream:
        try:
            self._server = await self._connect()
        except (OSError, TimeoutError):
            raise UnreachableError("no program listens on this port") from None
        return self._server

    def _hang_up(self) -> None:
        if self._server is not None:
            silence(self._server.connection)

    def _leave(self) -> None:
        if self._server is not None:
            self._server.release()
            self._server.connection.close()
            self._server = None

    def close(self) -> None:
        self._leave()
        self._stream.release()
        with contextlib.suppress(OSError):
            self._stream.connection.close()


def _request_head(request: HttpRequest, admitted: Admitted) -> bytes:
    headers = admitted.headers + framing(request.body, always=request.method in ("POST", "PUT", "PATCH"))
    headers += UPGRADE if asks_for_websocket(request) else [("Connection", "close")]
    return serialise(f"{request.method} {admitted.target} HTTP/1.1", headers)


# Browsers go on without showing it; `curl` without -L shows this and nothing else.
_FOR_PROGRAMS = f"The token is a cookie from here on. A program sends it in the header {TOKEN_HEADER} instead.\n"


def _own_answer(status: int, text: str, more: Headers | None = None, kind: str = "text/plain") -> bytes:
    body = text.encode()
    headers: Headers = [
        ("Content-Type", f"{kind}; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
        *_PRIVATE,
        *(more or []),
    ]
    return serialise(f"HTTP/1.1 {status} {_REASONS[status]}", headers) + body


def _welcome(welcome: Welcome) -> bytes:
    cookie = ("Set-Cookie", welcome.cookie)
    if not welcome.is_from_elsewhere:
        return _own_answer(303, _FOR_PROGRAMS, [cookie, ("Location", welcome.location)])
    page = f'<!doctype html><meta http-equiv="refresh" content="0;url={html.escape(welcome.location)}">\n'
    return _own_answer(200, page, [cookie], "text/html")
