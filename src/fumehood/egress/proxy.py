"""The proxy at 127.0.0.1, for clients that prefer one: CONNECT, plain requests with whole addresses, and SOCKS5."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import Protocol

from fumehood.egress.connection import Announce, Connection, Destination
from fumehood.egress.exchange import answer
from fumehood.egress.http1 import HttpRequest, MalformedMessageError, MessageReader, parse_request
from fumehood.egress.log import EgressDeniedError, UnreachableError
from fumehood.egress.routes import split_authority
from fumehood.policy.decision import Decision, deny
from fumehood.policy.egress import Attempt, Route, to_denial

PORT = 3128
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_SOCKS = 5
_SOCKS_OK, _SOCKS_REFUSED, _SOCKS_UNREACHABLE, _SOCKS_UNKNOWN_COMMAND, _SOCKS_UNKNOWN_ADDRESS = 0, 2, 4, 7, 8


class Carrier(Protocol):
    """What happens to a connection once it is known where it is to go."""

    async def carry(self, connection: Connection, route: Route, announce: Announce) -> None: ...

    async def serve_requests(self, connection: Connection, first: HttpRequest, /) -> None: ...


class Proxy:
    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier

    async def serve(self, connection: Connection, _: Destination) -> None:
        async with asyncio.timeout(connection.limits.hello_seconds):
            first = await connection.near.read()
        connection.near.put_back(first)
        if not first:
            return
        if first[0] == _SOCKS:
            await self._serve_socks(connection)
        else:
            await self._serve_http(connection)

    async def _serve_http(self, connection: Connection) -> None:
        seconds = connection.limits.hello_seconds
        messages = MessageReader(connection.near)
        try:
            head = await messages.head(seconds, idle_seconds=seconds)
            request = None if head is None else parse_request(head)
            destination = split_authority(request.target, None) if request and request.method == "CONNECT" else None
        except MalformedMessageError as error:
            decision = deny(Attempt("http", "the proxy"), f"the request could be read in two ways: {error}")
            connection.refuse(decision)
            return await connection.near.farewell(answer(400, {"error": "denied", "why": decision.reason}))
        if request is None or head is None:
            return None
        if destination is None:
            connection.near.put_back(head + b"\r\n\r\n" + messages.rest())
            return await self._carrier.serve_requests(connection, request)
        if request.body:
            raise MalformedMessageError("CONNECT has no body")
        connection.near.put_back(messages.rest())
        return await self._connect(connection, *destination, _HttpWords(connection))

    async def _serve_socks(self, connection: Connection) -> None:
        async with asyncio.timeout(connection.limits.hello_seconds):
            _, count = await _exactly(connection, 2)
            if 0 not in await _exactly(connection, count):
                # It insists on a password, and we have none.
                return await connection.near.farewell(bytes([_SOCKS, 0xFF]))
            await connection.near.write(bytes([_SOCKS, 0]))
            version, command, _, kind = await _exactly(connection, 4)
            host = await _socks_host(connection, kind)
            port = int.from_bytes(await _exactly(connection, 2), "big")
        words = _SocksWords(connection)
        if (version, command) != (_SOCKS, 1):
            connection.refuse(deny(Attempt("connect", host or "?", port), "SOCKS is for TCP connections only"))
            return await words.end(_SOCKS_UNKNOWN_COMMAND)
        if host is None:
            return await words.end(_SOCKS_UNKNOWN_ADDRESS)
        return await self._connect(connection, host, port, words)

    async def _connect(self, connection: Connection, host: str, port: int, words: _HttpWords | _SocksWords) -> None:
        """Opens a tunnel and replies to the client that it is; a refusal before that is a reply of its protocol."""
        try:
            await self._carrier.carry(connection, connection.judge(host, port), words.accepted)
        except EgressDeniedError as error:
            if words.said:
                raise
            connection.refuse(error.decision)
            await words.refused(error.decision)
        except UnreachableError as error:
            if words.said:
                raise
            await words.unreachable(str(error))


async def _socks_host(connection: Connection, kind: int) -> str | None:
    match kind:
        case 1:
            return str(ip_address(await _exactly(connection, 4)))
        case 3:
            (length,) = await _exactly(connection, 1)
            return (await _exactly(connection, length)).decode("latin-1")
        case 4:
            return str(ip_address(await _exactly(connection, 16)))
        case _:
            return None


class _HttpWords:
    def __init__(self, connection: Connection) -> None:
        self._near = connection.near
        self.said = False

    async def accepted(self) -> None:
        self.said = True
        await self._near.write(_ESTABLISHED)

    async def refused(self, decision: Decision[Attempt]) -> None:
        denial = to_denial(decision)
        content = {"error": "denied by the policy of this sandbox", "what": denial.what, "why": denial.why}
        await self._near.farewell(answer(403, {**content, "rule": denial.rule, "remedy": denial.remedy}))

    async def unreachable(self, why: str) -> None:
        await self._near.farewell(answer(502, {"error": "the server cannot be reached", "why": why}))


class _SocksWords:
    def __init__(self, connection: Connection) -> None:
        self._near = connection.near
        self.said = False

    async def accepted(self) -> None:
        self.said = True
        await self._near.write(_socks_reply(_SOCKS_OK))

    async def refused(self, decision: Decision[Attempt]) -> None:
        await self.end(_SOCKS_REFUSED)

    async def unreachable(self, why: str) -> None:
        await self.end(_SOCKS_UNREACHABLE)

    async def end(self, code: int) -> None:
        await self._near.farewell(_socks_reply(code))


def _socks_reply(code: int) -> bytes:
    return bytes([_SOCKS, code, 0, 1, 0, 0, 0, 0, 0, 0])


async def _exactly(connection: Connection, count: int) -> bytes:
    data = b""
    while len(data) < count:
        if not (more := await connection.near.read(count - len(data))):
            raise ConnectionResetError
        data += more
    return data
