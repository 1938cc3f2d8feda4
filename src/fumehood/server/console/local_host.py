"""`hood console`: the console of one user, at the loopback, opened by a link that works once."""

from __future__ import annotations

import hmac
import secrets
from asyncio import Transport
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope
from uvicorn.protocols.http.h11_impl import H11Protocol

from fumehood.audit.log import current_user
from fumehood.server.console.app import build_console, problem_page
from fumehood.server.console.local_source import LocalLogSource
from fumehood.server.console.page_request import StalePageError
from fumehood.server.console.peers import owner_of, trusted_users
from fumehood.server.console.routes import ROOT
from fumehood.server.console.sessions import MemorySessions
from fumehood.server.console.sign_in import begin_session
from fumehood.server.console.source import ConsoleSource
from fumehood.server.identity.principals import OF_TENANTS, Principal, Scope

_WHY = b"this console is another user's; start `hood console` yourself"
_REFUSAL = b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(_WHY), _WHY)
_USED = "Links of `hood console` work once. Press Enter where it runs for another one."


class LocalConsole:
    is_local = True

    def __init__(self, source: LocalLogSource) -> None:
        self._source, self.sessions = source, MemorySessions()
        self._once = ""

    def new_link(self, address: str) -> str:
        """The one before it does not work any more."""
        self._once = secrets.token_urlsafe(32)
        return f"{address}{ROOT}/open?once={self._once}"

    def source_of(self, principal: Principal) -> ConsoleSource:
        return self._source

    @asynccontextmanager
    async def admitted(self, principal: Principal) -> AsyncIterator[None]:
        yield

    def sign_in_routes(self) -> list[Route]:
        return [Route("/open", self._open), Route("/sign-in", self._explain)]

    def close(self) -> None:
        """Ends the streams of open pages."""
        self._source.feed.close()

    async def _open(self, request: Request) -> Response:
        given = request.query_params.get("once", "")
        if not self._once or not hmac.compare_digest(given.encode(), self._once.encode()):
            return problem_page(request, StalePageError(_USED))
        self._once = ""
        scopes = frozenset(OF_TENANTS) if self._source.is_own else frozenset({Scope.RUN, Scope.AUDIT})
        viewer = Principal("", current_user(), scopes)
        return await begin_session(self.sessions, request, viewer, "/")

    async def _explain(self, request: Request) -> Response:
        return problem_page(request, StalePageError(_USED))


def local_app(console: LocalConsole, port: int) -> ASGIApp:
    async def to_console(request: Request) -> Response:
        return RedirectResponse(f"{ROOT}/")

    app = Starlette(routes=[Mount(ROOT, build_console(console)), Route("/", to_console)])
    return _OwnHost(app, port)


class OwnConnections(H11Protocol):
    """Connections of a user who may have one. Those of others end at once, and take up nobody's place.

    Others of this machine can read the link in the arguments of the browser's process, and get the cookie, which
    browsers send to every port of an address, at a port of their own.
    """

    def connection_made(self, transport: Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        client, server = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if owner_of(client, server) not in trusted_users():
            transport.write(_REFUSAL)
            transport.close()


class _OwnHost:
    """A name of another site can be made to lead to the loopback: requests have to be for an address of ours."""

    def __init__(self, inner: ASGIApp, port: int) -> None:
        self._inner = inner
        self._names = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        hosts = [value for name, value in scope.get("headers", ()) if name == b"host"]
        if scope["type"] == "http" and (len(hosts) != 1 or hosts[0] not in self._names):
            await PlainTextResponse("this console has another address", 421)(scope, receive, send)
            return
        await self._inner(scope, receive, send)
