"""A way out that leads nowhere, for finding out what a program wants: everything is answered, noted and refused.

Every name gets an address, a handshake is completed with the sandbox's own certificates, a request is read and answered
with an empty success, so that the program goes on and more is learned. Nothing is looked up and nothing is dialled:
`LearnMode` takes the place of the tunnel, and the connections of the sandbox have no dialer.
"""

from __future__ import annotations

import asyncio
import ssl
from functools import cache
from typing import TYPE_CHECKING

from fumehood.egress.connection import Announce, Connection, Destination, no_announcement
from fumehood.egress.http1 import (
    CutOffError,
    HttpRequest,
    MalformedMessageError,
    MessageReader,
    parse_request,
    serialise,
)
from fumehood.egress.routes import split_url
from fumehood.egress.streams import Stream, TlsStream
from fumehood.egress.websocket import asks_for_websocket
from fumehood.policy import Policy
from fumehood.policy.decision import Decision, deny
from fumehood.policy.egress import Attempt, Route

if TYPE_CHECKING:
    from fumehood.egress.certificates import CertificateAuthority

# Where programs are likely to connect to. Elsewhere they are refused at once, and are seen only by a packet monitor.
PORTS = (
    *(21, 22, 25, 80, 110, 143, 389, 443, 465, 587, 636, 993, 995, 1433, 1521, 1883, 2181, 3000, 3306, 4222, 4317),
    *(4318, 5000, 5432, 5672, 6333, 6379, 6432, 7687, 8000, 8080, 8081, 8086, 8088, 8123, 8200, 8443, 8500, 8529),
    *(8883, 8888, 9000, 9042, 9090, 9092, 9200, 9300, 9418, 9443, 11211, 11434, 19530, 26257, 27017),
)
WHY = "nothing goes out while learning"
_HANDSHAKE = 0x16
_SILENCE_SECONDS = 1.0
_EMPTY_SUCCESS = serialise("HTTP/1.1 200 OK", [("Content-Length", "0"), ("Connection", "close")])


@cache
def everything() -> Policy:
    """Rules that cover whatever a program tries; not to let it out, but to hear of it."""
    ports = list(range(1, 65536))
    rules = [{"host": host, "ports": ports, "private": True} for host in ("*", "0.0.0.0/0")]
    return Policy(network={"allow": rules})


def refusal(attempt: Attempt) -> Decision[Attempt]:
    return deny(attempt, WHY)


class LearnMode:
    """Takes the place of a tunnel to servers, with the same methods."""

    def __init__(self, authority: CertificateAuthority) -> None:
        self._authority = authority

    async def serve(self, connection: Connection, destination: Destination) -> None:
        await self.carry(connection, connection.judge_address(destination))

    async def carry(self, connection: Connection, route: Route, announce: Announce = no_announcement) -> None:
        """A connection that would go out: read as much as tells what it is for, and end it."""
        await announce()
        attempt = Attempt("connect", route.host, route.port)
        try:
            async with asyncio.timeout(_SILENCE_SECONDS):
                first = await connection.near.read()
        except TimeoutError:
            first = b""  # it waits for the server to speak first, as programs do with mail and some databases
        connection.near.put_back(first)
        if first[:1] == bytes([_HANDSHAKE]):
            await self._study_handshake(connection, route)
        elif first[:1].isalpha():
            await _study_request(connection, connection.near, attempt, secure=False)
        else:
            connection.refuse(refusal(attempt))

    async def serve_requests(self, connection: Connection, first: HttpRequest) -> None:
        """A request that was sent to the proxy with a whole address."""
        host, port, target = split_url(first.target)
        route = connection.judge(host, port)
        path = target.partition("?")[0]
        attempt = Attempt("http", route.host, route.port, first.method, path, websocket=asks_for_websocket(first))
        connection.refuse(refusal(attempt))
        await connection.near.farewell(_EMPTY_SUCCESS)

    async def _study_handshake(self, connection: Connection, route: Route) -> None:
        attempt = Attempt("tls", route.host, route.port)
        client = TlsStream(connection.near, self._authority.context(route.host), server_name=None, server=True)
        try:
            async with asyncio.timeout(connection.limits.hello_seconds):
                await client.handshake()
        except (ssl.SSLError, OSError):
            connection.refuse(refusal(attempt))
            return
        await _study_request(connection, client, attempt, secure=True)


async def _study_request(connection: Connection, client: Stream, otherwise: Attempt, *, secure: bool) -> None:
    """Noted as what it otherwise is, if it turns out to be no request."""
    seconds = connection.limits.hello_seconds
    try:
        head = await MessageReader(client).head(seconds, idle_seconds=_SILENCE_SECONDS)
        request = None if head is None else parse_request(head)
    except (MalformedMessageError, CutOffError, TimeoutError):
        request = None
    if request is None:
        connection.refuse(refusal(otherwise))
        return
    path = request.target.partition("?")[0]
    attempt = Attempt("http", otherwise.host, otherwise.port, request.method, path, secure, asks_for_websocket(request))
    connection.refuse(refusal(attempt))
    await client.farewell(_EMPTY_SUCCESS)
