"""Ports of a sandbox at addresses of the host: which may be had, and the caller's end of each."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio

from fumehood.audit.trail import Trail
from fumehood.concurrency.threads import run_whole
from fumehood.errors import DeniedError, UsageError
from fumehood.policy import Policy, Seconds, read_seconds
from fumehood.sandbox.core import SandboxCore
from fumehood.sandbox.egress import wait_for_gateway

if TYPE_CHECKING:
    from fumehood.ingress.server import PortServer

Connect = Callable[[int], Awaitable[socket.socket]]
_LOOK_SECONDS = 0.05


class AsyncExposedPort:
    """A port of a sandbox, at an address of this machine's loopback; made by `AsyncSandbox.expose`.

    It answers until it is closed, or its sandbox is, whether a program listens at the moment or not.
    """

    def __init__(self, server: PortServer, connect: Connect) -> None:
        self._server, self._connect = server, connect
        self._is_closed = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.port} at {self.address})"

    @property
    def port(self) -> int:
        """The port inside."""
        return self._server.port

    @property
    def url(self) -> str:
        """For a browser. It holds the token, which the first visit turns into a cookie."""
        return self._server.access.url

    @property
    def address(self) -> str:
        """For a program, such as http://127.0.0.1:40123, with `headers` in every request."""
        return self._server.access.address

    @property
    def headers(self) -> Mapping[str, str]:
        """The header that holds the token, for programs."""
        return self._server.access.headers

    @property
    def is_open(self) -> bool:
        return not self._is_closed

    def admit(self, connection: socket.socket) -> None:
        """A connection that was accepted elsewhere, for a port whose address is there."""
        self._server.admit(connection)

    async def wait_ready(self, timeout: Seconds | None = 30) -> None:
        """Until a program listens on the port; TimeoutError if none does in time."""
        with anyio.fail_after(None if timeout is None else read_seconds(timeout, "timeout")):
            # The kernel reports it to no process outside, so there is nothing to wait for but the next look.
            while not await self._is_ready():  # noqa: ASYNC110
                await anyio.sleep(_LOOK_SECONDS)

    async def _is_ready(self) -> bool:
        with suppress(OSError):
            connection = await self._connect(self.port)
            connection.close()
            return True
        return False

    async def close(self) -> None:
        """When this returns nothing listens there any more, and what was asked for is in the audit log."""
        if not self._is_closed:
            self._is_closed = True
            await wait_for_gateway(self._server.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class SandboxPorts:
    """The published ports of one sandbox."""

    def __init__(self, core: SandboxCore) -> None:
        self._core = core
        self._open: list[AsyncExposedPort] = []

    async def expose(self, port: int, client_port: int | None = None) -> AsyncExposedPort:
        """With `client_port` the address is a client's, elsewhere."""
        core, backend = self._core, self._core.backend
        async with core.audit.denials("expose"):
            check_port(core.policy, port, core.gateway_ports)
        exposed = await _expose(port, backend.connect, core.audit.trail, client_port)
        self._open = [*(other for other in self._open if other.is_open), exposed]
        core.stack.push_async_callback(exposed.close)
        return exposed

    async def close_refused(self, policy: Policy) -> None:
        """Closes those that this policy does not publish, or at which the gateway listens now."""
        for exposed in self._open:
            if exposed.port not in policy.network.publish or exposed.port in self._core.gateway_ports:
                await exposed.close()


async def _expose(port: int, connect: Connect, trail: Trail, client_port: int | None) -> AsyncExposedPort:
    def start() -> PortServer:
        from fumehood.egress import shared_gateway
        from fumehood.ingress.server import PortServer

        server = PortServer(shared_gateway(), port, lambda: connect(port), client_port)
        server.open(trail)
        return server

    return AsyncExposedPort(await run_whole(start, lambda made: made.close()), connect)


def check_port(policy: Policy, port: int, taken: tuple[int, ...]) -> None:
    """`taken` are the ports at which the gateway listens inside."""
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"{port!r} is not a port; give a number from 1 to 65535")
    if port not in policy.network.publish:
        raise DeniedError(f"port {port} may not be reached from the host; add {port} to network.publish of the policy")
    if port in taken:
        raise UsageError(
            f"at port {port} of the sandbox the gateway listens, for network.allow; let the server have another port"
        )
