"""Messages over streamable HTTP: each session of the protocol is a client of its own.

Every request has to name one of our own names as its host: a page's own name can be made to lead here. `http_access`
asks for the token and the origin.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import anyio
import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fumehood.errors import SandboxError, UsageError
from fumehood.host.loopback import is_loopback
from fumehood.host.tcp_listener import listen_at
from fumehood.integrations.mcp.clients import open_clients
from fumehood.integrations.mcp.context import MOST_MESSAGE_BYTES, ToolServerSettings
from fumehood.integrations.mcp.http_access import check_origin, require_token
from fumehood.integrations.mcp.server import SandboxServer, only_with_sessions

PATH = "/mcp"
SHORTEST_TOKEN = 16
_OWN_NAMES = ("127.0.0.1", "localhost", "[::1]")
_GOODBYE_SECONDS = 1
_CONNECTIONS_EACH = 32


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """An address to listen at, the token, and the host names and origins that are accepted."""

    host: str
    port: int
    token: str
    hosts: tuple[str, ...] = ()
    """Host names that clients may use, with a port where it differs; needed for anything but the loopback."""
    origins: tuple[str, ...] = ()
    """Origins of web pages that may use the server, such as https://tools.example.com."""

    def __post_init__(self) -> None:
        if len(self.token) < SHORTEST_TOKEN or not self.token.isascii() or not self.token.isprintable():
            raise UsageError(f"a token has at least {SHORTEST_TOKEN} characters, printable ASCII without line ends")
        if not self.is_local and not self.hosts:
            raise UsageError(f"{self.host} can be reached by many names; name those that clients use with --allow-host")
        for origin in self.origins:
            check_origin(origin)

    @property
    def is_local(self) -> bool:
        return is_loopback(self.host)

    def names(self, port: int) -> list[str]:
        """Every value of the header `Host` that is accepted."""
        own = _OWN_NAMES if self.is_local else ()
        return [name if _has_port(name) else f"{name}:{port}" for name in (*own, *self.hosts)] + [*self.hosts]


async def serve_http(settings: ToolServerSettings, endpoint: HttpEndpoint, ready: Callable[[str], None]) -> None:
    """Serve until it is cancelled. `ready` receives the address when requests can come."""
    host, port, remedy = endpoint.host, endpoint.port, "choose another with --http"
    with listen_at(host, port, remedy, is_local=endpoint.is_local) as listener:
        port = listener.getsockname()[1]
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        config = uvicorn.Config(
            _application(settings, endpoint, port, lambda: ready(f"http://{host}:{port}{PATH}")),
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GOODBYE_SECONDS,
            limit_concurrency=settings.most_clients * _CONNECTIONS_EACH,
        )
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it complains of clients that stay to the end
        await _serve(_Server(config), listener)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are handled by the caller."""
        yield


async def _serve(server: _Server, listener: socket.socket) -> None:
    async def stop_when_cancelled() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            server.should_exit = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop_when_cancelled)
        with anyio.CancelScope(shield=True):
            await server.serve(sockets=[listener])
        tasks.cancel_scope.cancel()
    if not server.started:
        raise SandboxError("the server did not start")


def _application(settings: ToolServerSettings, endpoint: HttpEndpoint, port: int, ready: Callable[[], None]) -> ASGIApp:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with open_clients(settings) as clients:
            server = SandboxServer(clients)
            server.middleware.append(only_with_sessions)
            manager = StreamableHTTPSessionManager(
                server,
                session_idle_timeout=settings.idle_seconds,
                max_request_body_size=MOST_MESSAGE_BYTES,
                max_sessions=settings.most_clients,
                security_settings=TransportSecuritySettings(
                    allowed_hosts=endpoint.names(port), allowed_origins=list(endpoint.origins)
                ),
            )
            async with manager.run():
                app.state.handle = manager.handle_request
                ready()
                yield

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        await application.state.handle(scope, receive, send)

    application = Starlette(routes=[Route(PATH, endpoint=_Endpoint(handle))], lifespan=lifespan)
    return require_token(application, endpoint.token, endpoint.origins)


class _Endpoint:
    """An application as an endpoint: Starlette takes functions for something else."""

    def __init__(self, handle: ASGIApp) -> None:
        self._handle = handle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._handle(scope, receive, send)


def _has_port(name: str) -> bool:
    return name.rpartition(":")[2].isdigit() and not name.endswith("]")
