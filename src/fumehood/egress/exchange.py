"""Requests and responses, one after the other: each request is judged, rewritten and sent on by itself.

What leaves is written anew from what was understood, so that no byte that the rules have not seen gets out beside it.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from http import HTTPStatus

from fumehood.egress.connection import Connection
from fumehood.egress.credentials import Credentials
from fumehood.egress.forwarder import Forwarder
from fumehood.egress.http1 import (
    Body,
    CutOffError,
    Headers,
    HttpRequest,
    HttpResponse,
    MalformedMessageError,
    MessageReader,
    forwarded,
    framing,
    parse_request,
    serialise,
    tokens,
    value_of,
)
from fumehood.egress.log import EgressDeniedError, UnreachableError
from fumehood.egress.routes import RouteChoice
from fumehood.egress.streams import PlainStream, Stream, TlsStream
from fumehood.egress.websocket import UPGRADE, asks_for_websocket
from fumehood.policy.decision import Decision, deny
from fumehood.policy.egress import METHODS_WITH_BODY, Attempt, Route, canonical_header, is_plain_header, to_denial
from fumehood.policy.hosts import endpoint

_REASONS = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway"}
_USUAL_PORTS = {"tls": 443, "http": 80}
# With a credential in the request, these would bring back parts of its echo, or an echo that is not recognised.
_ASK_FOR_PARTS = ("range", "if-range", "request-range", "a-im", "accept-encoding", "accept-charset")
_PARTS = (HTTPStatus.PARTIAL_CONTENT, HTTPStatus.IM_USED)


class HttpExchange:
    """All requests of one client. `tls` verifies servers; it is made when it is first needed."""

    def __init__(
        self, connection: Connection, client: Stream, choose_route: RouteChoice, tls: Callable[[], ssl.SSLContext]
    ) -> None:
        self._connection, self._choose_route, self._tls = connection, choose_route, tls
        self._rules, self._limits = connection.rules, connection.limits
        self._client = MessageReader(client)
        self._forwarder = Forwarder(self._client, self._limits, connection.inspect, connection.hang_up)
        self._server: MessageReader | None = None
        self._reached: Route | None = None

    async def run(self) -> None:
        while True:
            self._forwarder.has_answered = False
            try:
                request = await self._next_request()
                if request is None:
                    return None
                if not await self._serve(request):
                    return await self._client.stream.farewell()
            except MalformedMessageError as error:
                return await self._refuse(self._unreadable(error), 400)
            except EgressDeniedError as error:
                return await self._refuse(error.decision, 403)
            except UnreachableError as error:
                return await self._answer(502, {"error": "the server cannot be reached", "why": str(error)})

    async def _next_request(self) -> HttpRequest | None:
        try:
            head = await self._client.head(self._limits.hello_seconds, idle_seconds=self._limits.idle_seconds)
        except CutOffError:
            return None
        return None if head is None else parse_request(head)

    async def _serve(self, request: HttpRequest) -> bool:
        """One request and its response; whether another may follow."""
        route, target = self._choose_route(self._connection, request)
        decision = self._rules.book.decide_request(
            route,
            request.method,
            target,
            request.host,
            [name for name, _ in request.headers],
            has_body=request.body != 0,
            websocket=asks_for_websocket(request),
        )
        if not decision.allowed:
            raise EgressDeniedError(decision)
        if self._rules.has_canaries:
            self._connection.inspect(serialise(f"{request.method} {target}", request.headers))
        server = await self._reach(route)
        self._connection.log.record(decision)
        # A change of policy may bring other values before the answer comes, which can only hold these.
        credentials = self._rules.credentials
        redactor = credentials.redactor(route.secrets)
        await server.stream.write(self._request_head(request, route, target, credentials))
        if request.awaits_continue:
            # Said here, because a server that refuses before the body may take the body for the next request.
            await self._client.stream.write(serialise(f"HTTP/1.1 100 {HTTPStatus.CONTINUE.phrase}", []))
        async with self._forwarder.uploading(server.stream, request.body) as upload:
            response = await self._forwarder.response(server, request)
            if response.status == 101:
                await self._forwarder.switch(server, forwarded(response.headers), redactor)
                return False
            if route.secrets:
                _refuse_unreadable(response)
            headers = forwarded(response.headers, ["alt-svc"])
            await self._forwarder.pass_back(server, request, response, headers, redactor)
            finished = upload is None or (upload.done() and upload.result())
        if not (finished and response.keeps_alive) or response.body is Body.UNTIL_CLOSE or _is_last(request, route):
            self._server = None
            self._connection.leave()
        return finished and request.keeps_alive and response.body is not Body.UNTIL_CLOSE

    async def _reach(self, route: Route) -> MessageReader:
        """The server of the route: the one that is connected already, if it is the same and still there."""
        current, same = self._server, self._reached == route
        if current is not None and same and current.is_empty and current.stream.is_fresh():
            return current
        self._server, self._reached = None, route
        below = await self._connection.reach(route)
        stream = await self._secure(below, route) if route.protocol == "tls" else below
        self._server = MessageReader(stream)
        return self._server

    async def _secure(self, below: PlainStream, route: Route) -> TlsStream:
        stream = TlsStream(below, self._tls(), server_name=route.host, server=False)
        try:
            async with asyncio.timeout(self._limits.hello_seconds):
                await stream.handshake()
        except ssl.SSLCertVerificationError as error:
            raise self._failed(f"{route.host} has no valid certificate: {error.verify_message}") from None
        except (OSError, TimeoutError):
            raise self._failed(f"{route.host} broke off the TLS handshake") from None
        return stream

    def _failed(self, reason: str) -> UnreachableError:
        self._connection.log.fail(reason)
        return UnreachableError(reason)

    def _request_head(self, request: HttpRequest, route: Route, target: str, credentials: Credentials) -> bytes:
        added = credentials.headers(route.secrets)
        replaced = {"host", *(canonical_header(name) for name, _ in added)}
        replaced.update(_ASK_FOR_PARTS if added else ())
        passed = forwarded(request.headers, replaced)
        if route.narrowing:
            passed = [(name, value) for name, value in passed if is_plain_header(name, value)]
        headers: Headers = [("Host", _host_header(route)), *passed, *added]
        headers += [("Accept-Encoding", "identity")] if added else []
        headers += framing(request.body, always=request.method in ("POST", "PUT", "PATCH"))
        if asks_for_websocket(request):
            headers += UPGRADE
        elif _is_last(request, route):
            headers.append(("Connection", "close"))
        return serialise(f"{request.method} {target} HTTP/1.1", headers)

    def _unreadable(self, error: MalformedMessageError) -> Decision[Attempt]:
        route = self._choose_route.route
        host, port, rule = ("the proxy", 0, "") if route is None else (route.host, route.port, route.key)
        return deny(Attempt("http", host, port), f"the request could be read in two ways: {error}", rule)

    async def _refuse(self, decision: Decision[Attempt], status: int) -> None:
        self._connection.refuse(decision)
        denial = to_denial(decision)
        content = {"error": "denied by the policy of this sandbox", "what": denial.what, "why": denial.why}
        await self._answer(status, {**content, "rule": denial.rule, "remedy": denial.remedy})

    async def _answer(self, status: int, content: dict[str, str]) -> None:
        if self._forwarder.has_answered:
            # Half of another answer is out already; a reset is the only clear word left.
            raise ConnectionAbortedError
        await self._client.stream.farewell(answer(status, content))


def answer(status: int, content: dict[str, str]) -> bytes:
    """A response of the gateway's own."""
    body = json.dumps(content).encode() + b"\n"
    headers: Headers = [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
        ("X-Fumehood", "denied" if status != 502 else "unreachable"),
    ]
    return serialise(f"HTTP/1.1 {status} {_REASONS[status]}", headers) + body


def _is_last(request: HttpRequest, route: Route) -> bool:
    """Whether the connection to the server ends with this request.

    A server that does not read the body would read it as a request; one that was asked for a WebSocket may have opened
    it without saying so.
    """
    if asks_for_websocket(request):
        return True
    return request.body != 0 and bool(route.narrowing or request.method not in METHODS_WITH_BODY)


def _refuse_unreadable(response: HttpResponse) -> None:
    """Raises UnreachableError for a response in which the echo of a credential could not be found."""
    if response.status in _PARTS or (value_of(response.headers, "content-type") or "").lower().startswith(
        "multipart/b"
    ):
        raise UnreachableError("the server sent a part of its answer, in which a credential could not be recognised")
    if any(coding != "identity" for coding in tokens(response.headers, "content-encoding")):
        raise UnreachableError("the server encoded its answer, in which a credential could not be recognised")


def _host_header(route: Route) -> str:
    if route.port == _USUAL_PORTS.get(route.protocol, 80):
        return f"[{route.host}]" if ":" in route.host else route.host
    return endpoint(route.host, route.port)
