"""What is checked of every request before its route: its host, its origin, its size, its key and its tenant's quota.

Plain ASGI, so that a client that leaves is noticed by what works for it. A web page that a person looks at can reach
servers on that person's machine: hence the host, which a page's own name can be made to lead to, and the origin.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from fumehood.server.api.problems import answer_problem, problem
from fumehood.server.connections import TooManyConnectionsError, TooMuchHeldError
from fumehood.server.settings import ServerSettings

if TYPE_CHECKING:
    from fumehood.server.lifetime import ServerState

PREFIX = "/v1/"
_PAGES = "/console/"
PUBLIC = frozenset({"/v1/health/live", "/v1/health/ready", "/v1/openapi.json"})
_NO_ROUTE = "none"
_ARCHIVE = re.compile(r"/v1/named-sandboxes/[^/]+/archive")


class RequestCheck:
    """Host, origin and body of every request, and of the first request of a WebSocket."""

    def __init__(self, inner: ASGIApp, settings: ServerSettings) -> None:
        self._inner, self._limits = inner, settings.limits
        self._names, self._origins = settings.names, frozenset(settings.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        most, seconds = self._body_limits(scope)
        refusal = self._refusal(Headers(scope=scope), most, _own_origin(scope))
        if refusal is not None:
            await _refuse(scope, receive, send, *refusal)
            return
        limited = _LimitedBody(receive, most, seconds)
        await self._inner(scope, limited.receive if scope["type"] == "http" else receive, send)

    def _body_limits(self, scope: Scope) -> tuple[int, float]:
        """Bytes and seconds. An archive is read as it comes, and what becomes of it is counted."""
        is_archive = scope["type"] == "http" and scope["method"] == "PUT" and _ARCHIVE.fullmatch(scope["path"])
        limits = self._limits
        return (limits.archive, limits.archive_time) if is_archive else (limits.body, limits.body_time)

    def _refusal(self, headers: Headers, most: int, own: str | None) -> tuple[int, str] | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or _without_port(hosts[0]) not in self._names:
            return 421, "the server does not have this name; its operator lists names with --host"
        if any(origin not in self._origins and origin != own for origin in headers.getlist("origin")):
            return 403, "pages of this origin may not use the server"
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > most:
            return 413, f"the body may have {most} bytes"
        return None


class _LimitedBody:
    """A body that may not be too large, nor too slow."""

    def __init__(self, receive: Receive, most: int, seconds: float) -> None:
        self._receive, self._most, self._seconds = receive, most, seconds
        self._size, self._is_whole = 0, False
        self._deadline: float | None = None

    async def receive(self) -> Message:
        if self._is_whole:
            return await self._receive()
        loop = asyncio.get_running_loop()
        self._deadline = self._deadline or loop.time() + self._seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, f"the body did not arrive within {self._seconds:g} s") from None
        self._size += len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        if self._size > self._most:
            raise HTTPException(413, f"the body may have {self._most} bytes")
        return message


class Admission:
    """The principal of a request, and its tenant's quota of requests; also counts answers. The channel has its own."""

    def __init__(self, inner: ASGIApp, server: Callable[[], ServerState]) -> None:
        self._inner, self._server = inner, server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await self._inner(scope, receive, send)
            return
        await self._admitted(scope, receive, _Counted(scope, send, self._server()).send)

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in PUBLIC:
            try:
                principal = await self._server().authenticator.request(HTTPConnection(scope))
                await self._server().requests.take(principal.tenant)
            except Exception as error:
                await (await answer_problem(HTTPConnection(scope), error))(scope, receive, send)
                return
            scope.setdefault("state", {})["principal"] = principal
            try:
                with self._server().connections.one_more(principal.tenant) as hold:
                    await self._inner(scope, _holding(receive, hold), send)
            except TooManyConnectionsError as error:
                await (await answer_problem(HTTPConnection(scope), error))(scope, receive, send)
            return
        await self._inner(scope, receive, send)


def _holding(receive: Receive, hold: Callable[[int], None]) -> Receive:
    async def counted() -> Message:
        message = await receive()
        try:
            hold(len(message.get("body", b"")))
        except TooMuchHeldError as error:  # which FastAPI would take for a body that is not valid
            raise HTTPException(429, str(error), {"Retry-After": "1"}) from None
        return message

    return counted


class _Counted:
    def __init__(self, scope: Scope, send: Send, server: ServerState) -> None:
        self._scope, self._send, self._metrics = scope, send, server.metrics
        self._started = time.monotonic()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            route = getattr(self._scope.get("route"), "path", _NO_ROUTE)
            took = time.monotonic() - self._started
            self._metrics.add_request(_method(self._scope), route, message["status"], took)
        await self._send(message)


def _method(scope: Scope) -> str:
    """Anything can be sent as one, and each would be a row of its own."""
    return scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "PUT", "DELETE") else "other"


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, detail: str) -> None:
    answer = problem(status, detail)
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(answer)
    else:
        await answer(scope, receive, send)


def _own_origin(scope: Scope) -> str | None:
    """The console's own, for its pages alone. A name that is not the server's is refused before this counts."""
    if scope["type"] != "http" or not scope["path"].startswith(_PAGES):
        return None
    return f"{scope['scheme']}://{Headers(scope=scope).get('host', '')}"


def _without_port(host: str) -> str:
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() and not name.endswith(":") else host.lower()
