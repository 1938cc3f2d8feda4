"""A server that listens: uvicorn with limits, and an end in two steps."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn

from fumehood.errors import SandboxError
from fumehood.host.loopback import is_loopback
from fumehood.host.tcp_listener import listen_at
from fumehood.server.app import build_app
from fumehood.server.connections import BoundedWebSocket, ConnectionLimit, TimedProtocol
from fumehood.server.lifetime import ServerState
from fumehood.server.settings import ServerSettings, split_address
from fumehood.server.tracing import TracedRequests

_GOODBYE_SECONDS = 5
_BACKLOG = 512


class ServerListener:
    """`stop` ends it: the first time when its sandboxes have ended, or after the time to drain; the second time now."""

    def __init__(self, settings: ServerSettings, ready: Callable[[str, ServerState], None]) -> None:
        self._settings, self._ready = settings, ready
        self._server: ServerState | None = None
        self._uvicorn: _Uvicorn | None = None
        self._drain: asyncio.Task[None] | None = None
        self._failure: str | None = None
        self._e2b: E2bListener | None = None

    @property
    def e2b_address(self) -> str | None:
        """Where programs with E2B's SDKs are served, if they are."""
        return self._e2b.address if self._e2b else None

    async def run(self) -> None:
        if self._settings.e2b is None:
            await self._run()
            return
        with _bound(split_address(self._settings.e2b), "--e2b") as listener:
            self._e2b = E2bListener(self._settings, listener)
            try:
                await self._run()
            finally:
                await self._e2b.stop()

    async def _run(self) -> None:
        with _bound(self._settings.address, "--listen") as listener:
            address = _address(self._settings, self._settings.address[0], listener)
            app = build_app(self._settings, ready=lambda server: self._begin(server, address), fail=self._fail)
            self._uvicorn = _Uvicorn(_config(self._settings, app))
            with suppress(SystemExit):  # of uvicorn, where the application did not start
                await self._uvicorn.serve(sockets=[listener])
        if self._drain is not None:
            self._drain.cancel()
            await asyncio.gather(self._drain, return_exceptions=True)
        if self._failure is not None or not self._uvicorn.started:
            raise SandboxError(self._failure or "the server did not start; its log says why")

    def stop(self) -> bool:
        """Whether it waits for sandboxes now."""
        if self._server is None or self._drain is not None:
            self._end()
            return False
        self._server.drain.set()
        self._drain = asyncio.ensure_future(self._drained(self._server))
        return not self._server.registry.is_empty

    async def _drained(self, server: ServerState) -> None:
        await server.registry.drain(self._settings.drain)
        self._end()

    def _begin(self, server: ServerState, address: str) -> None:
        self._server = server
        if self._e2b is not None:
            self._e2b.start(server)
        self._ready(address, server)

    def _fail(self, reason: str) -> None:
        self._failure = reason
        self._end()

    def _end(self) -> None:
        for close in self._server.before_end if self._server else ():
            close()
        if self._uvicorn is not None:
            self._uvicorn.should_exit = True


class E2bListener:
    """The second address, for E2B's protocol."""

    def __init__(self, settings: ServerSettings, listener: socket.socket) -> None:
        assert settings.e2b is not None
        self._settings, self._listener = settings, listener
        self.address = _address(settings, split_address(settings.e2b)[0], listener)
        self._uvicorn: _Uvicorn | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, server: ServerState) -> None:
        from fumehood.server.e2b import Terms, e2b_app

        longest, domain = self._settings.sandboxes.lifetime, self._settings.e2b_domain
        terms = Terms(longest, domain, take_request=server.requests.take, one_more=server.connections.one_more)
        app = e2b_app(server.database, server.registry, server.chains.trail_of, terms)
        traced = TracedRequests(app, lambda: server.tracing)
        self._uvicorn = _Uvicorn(_config(self._settings, traced))
        self._task = asyncio.ensure_future(self._uvicorn.serve(sockets=[self._listener]))

    async def stop(self) -> None:
        if self._uvicorn is not None and self._task is not None:
            self._uvicorn.should_exit = self._uvicorn.force_exit = True
            await asyncio.gather(self._task, return_exceptions=True)


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are handled by the caller."""
        yield


def _config(settings: ServerSettings, app: Any) -> uvicorn.Config:
    limits = settings.limits
    most = min(limits.connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
    details = {"headers_seconds": limits.headers_time, "limit": ConnectionLimit(most)}
    protocol = type("Protocol", (TimedProtocol,), details)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it complains of clients that stay to the end
    return uvicorn.Config(
        app,
        http=protocol,
        ws=BoundedWebSocket,
        ws_max_size=limits.message,
        ws_max_queue=4,
        ws_per_message_deflate=False,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.behind_proxy),
        forwarded_allow_ips=list(settings.behind_proxy),
        timeout_graceful_shutdown=_GOODBYE_SECONDS,
        limit_concurrency=most + 1,
        backlog=_BACKLOG,
        ssl_certfile=settings.tls.certificate if settings.tls else None,
        ssl_keyfile=settings.tls.key if settings.tls else None,
    )


def _address(settings: ServerSettings, host: str, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    return f"http{'s' if settings.tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"


@contextmanager
def _bound(place: tuple[str, int], option: str) -> Iterator[socket.socket]:
    host, port = place
    listener = listen_at(host, port, f"see {option}", is_local=is_loopback(host))
    # Connections inherit it. asyncio sets it only for sockets that name their protocol, which these do not: without it
    # the second part of an answer waits for a client's delayed acknowledgement of the first, 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with suppress(OSError), listener:
        yield listener
