"""A connection to one host and port: raw, in TLS that is passed through, or request by request."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from fumehood.egress.client_hello import ACCESS_DENIED_ALERT, NoHelloError, asks_again, parse_hello
from fumehood.egress.connection import Announce, Connection, Destination, no_announcement
from fumehood.egress.exchange import HttpExchange
from fumehood.egress.http1 import HttpRequest
from fumehood.egress.log import EgressDeniedError, UnreachableError
from fumehood.egress.routes import FixedRoute, RequestedRoute
from fumehood.egress.streams import PlainStream, TlsStream
from fumehood.policy.decision import deny
from fumehood.policy.egress import Attempt, Route

if TYPE_CHECKING:
    from fumehood.egress.certificates import CertificateAuthority


class Tunnel:
    """Carries connections to servers. `authority` is there if a rule reads requests; `tls` verifies servers."""

    def __init__(self, authority: CertificateAuthority | None, tls: Callable[[], ssl.SSLContext]) -> None:
        self._authority, self._tls = authority, tls

    async def serve(self, connection: Connection, destination: Destination) -> None:
        """A program connected to an address that stands for a name, or to a plain address."""
        await self.carry(connection, connection.judge_address(destination))

    async def carry(self, connection: Connection, route: Route, announce: Announce = no_announcement) -> None:
        """Everything that follows. `announce` tells a proxy's client that its way is open."""
        if route.protocol == "tls" and route.reads_requests:
            await announce()
            await self._intercept(connection, route)
        elif route.protocol == "http":
            await announce()
            await HttpExchange(connection, connection.near, FixedRoute(route), self._tls).run()
        else:
            far = await connection.reach(route)
            await announce()
            await _pass_through(connection, route, far)

    async def serve_requests(self, connection: Connection, _: HttpRequest) -> None:
        """Requests that a proxy's client sends with whole addresses; the first one is to be read again."""
        await HttpExchange(connection, connection.near, RequestedRoute(), self._tls).run()

    async def _intercept(self, connection: Connection, route: Route) -> None:
        connection.near.put_back(await _check_hello(connection, route))
        if self._authority is None:
            raise AssertionError("a rule about requests without an authority")
        client = TlsStream(connection.near, self._authority.context(route.host), server_name=None, server=True)
        try:
            async with asyncio.timeout(connection.limits.hello_seconds):
                await client.handshake()
        except ssl.SSLError:
            attempt = Attempt("tls", route.host, route.port)
            why = "the client broke off the handshake with the gateway, which reads requests here"
            trust = "let the program trust the certificates in SSL_CERT_FILE"
            remedy = f"{trust}, or leave methods and paths out of {route.key}"
            raise EgressDeniedError(deny(attempt, why, route.key, remedy)) from None
        await HttpExchange(connection, client, FixedRoute(route), self._tls).run()


async def _pass_through(connection: Connection, route: Route, far: PlainStream) -> None:
    """Bytes as they are, after the first messages of TLS."""
    if route.protocol == "tcp" and connection.rules.has_canaries:
        await _carry_watched(connection, far)
        return
    if route.protocol == "tls":
        await _pass_hello(connection, route, far)
    await far.write(connection.near.take_back())
    connection.hand_over()


async def _carry_watched(connection: Connection, far: PlainStream) -> None:
    """Under our eyes, where the kernel alone would be faster: something in it may have to stay."""

    async def pass_on(source: PlainStream, sink: PlainStream, look: Callable[[bytes], None] | None = None) -> None:
        while data := await source.read():
            if look is not None:
                look(data)
            await sink.write(data)
        sink.connection.shutdown(socket.SHUT_WR)

    ways = [
        asyncio.ensure_future(pass_on(connection.near, far, connection.inspect)),
        asyncio.ensure_future(pass_on(far, connection.near)),
    ]
    try:
        await asyncio.gather(*ways)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _pass_hello(connection: Connection, route: Route, far: PlainStream) -> None:
    """The client's first message, and the one with which it answers a server that asks for another."""
    await far.write(await _check_hello(connection, route))
    answer = b""
    try:
        async with asyncio.timeout(connection.limits.hello_seconds):
            while (again := asks_again(answer)) is None and (data := await far.read(kept=len(answer))):
                answer += data
    except NoHelloError as error:
        raise UnreachableError(str(error)) from None
    await connection.near.write(answer)
    if again:
        await far.write(await _check_hello(connection, route, is_second=True))


async def _check_hello(connection: Connection, route: Route, *, is_second: bool = False) -> bytes:
    """The client's message, if its handshake may go on; otherwise it gets an alert. What follows is put back."""
    early = b""
    try:
        async with asyncio.timeout(connection.limits.hello_seconds):
            while (hello := parse_hello(early, is_second=is_second)) is None:
                data = await connection.near.read(kept=len(early))
                if not data:
                    raise ConnectionResetError
                early += data
    except NoHelloError as error:
        attempt = Attempt("tls", route.host, route.port)
        remedy = "" if route.reads_requests else f"set protocol in {route.key} to what is spoken there"
        raise EgressDeniedError(deny(attempt, str(error), route.key, remedy)) from None
    decision = connection.rules.book.decide_hello(
        route, hello.server_name, encrypted=hello.encrypted, protocols=hello.protocols
    )
    if not decision.allowed:
        # Recorded before the reply to the client, so that every error that a program sees has its reason in the log.
        connection.refuse(decision)
        await connection.near.farewell(ACCESS_DENIED_ALERT)
        raise ConnectionAbortedError
    connection.near.put_back(early[hello.size :])
    return early[: hello.size]
