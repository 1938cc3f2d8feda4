"""The WebSocket through which a client has a sandbox: opens one or comes back to one, and passes messages on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket, WebSocketDisconnect

from fumehood.audit.trail import Trail
from fumehood.errors import FumehoodError, UsageError
from fumehood.guest.contract import frames
from fumehood.guest.contract.frames import FrameError, Header
from fumehood.remote.carrier import CarrierLostError
from fumehood.remote.connection import PROTOCOL
from fumehood.remote.failures import pack_failure
from fumehood.remote.greeting import receive_greeting
from fumehood.remote.policies import pack_policy
from fumehood.server.api.problems import answer_problem
from fumehood.server.connections import TenantConnections, TooManyConnectionsError
from fumehood.server.identity.authenticator import Authenticator
from fumehood.server.identity.principals import ForbiddenError, NotAuthenticatedError, Principal, Scope
from fumehood.server.sandboxes.errors import NoSuchSandboxError, SandboxClosedError
from fumehood.server.sandboxes.open_sandbox import OpenSandbox
from fumehood.server.sandboxes.opening import Times
from fumehood.server.sandboxes.registry import SandboxRegistry
from fumehood.server.sandboxes.requested_opening import StoreFinder, read_opening
from fumehood.server.storage.database import Database, StorageError

_FIRST_MESSAGE_SECONDS = 10
_log = logging.getLogger(__name__)


class AcceptedWebSocket:
    """The server's end of a WebSocket, as a carrier."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def send(self, data: bytes) -> None:
        try:
            await self._socket.send_bytes(data)
        except (WebSocketDisconnect, RuntimeError) as error:
            raise CarrierLostError("the client has hung up") from error

    async def receive(self) -> bytes:
        try:
            return await self._socket.receive_bytes()
        except (WebSocketDisconnect, RuntimeError, KeyError) as error:
            raise CarrierLostError("the client has hung up") from error

    async def close(self) -> None:
        with suppress(WebSocketDisconnect, RuntimeError):
            await self._socket.close()


class SandboxChannel:
    """`trail_of` gives the trail that a principal's sandboxes are recorded in; `longest` are the server's limits."""

    def __init__(
        self,
        database: Database,
        authenticator: Authenticator,
        registry: SandboxRegistry,
        connections: TenantConnections,
        trail_of: Callable[[Principal], Trail],
        longest: Times,
        stores: StoreFinder,
    ) -> None:
        self._database, self._authenticator, self._stores = database, authenticator, stores
        self._registry, self._connections = registry, connections
        self._trail_of, self._longest = trail_of, longest

    async def serve(self, socket: WebSocket) -> None:
        principal = await self._admit(socket)
        if principal is None:
            return
        try:
            with self._connections.one_more(principal.tenant):
                await self._serve(socket, principal)
        except TooManyConnectionsError as error:
            await _deny(socket, error)

    async def _serve(self, socket: WebSocket, principal: Principal) -> None:
        await socket.accept()
        carrier = AcceptedWebSocket(socket)
        try:
            opened, received = await self._begin(principal, carrier)
            await opened.serve(carrier, received)
        except (FumehoodError, FrameError) as error:
            await _send(carrier, failed=pack_failure(error if isinstance(error, FumehoodError) else _usage(error)))
        except (CarrierLostError, TimeoutError):
            pass  # it has hung up, or has not said in time what it wants
        except Exception as error:
            _log.exception("a connection failed")
            await _send(carrier, failed=pack_failure(error))
        finally:
            await carrier.close()

    async def _admit(self, socket: WebSocket) -> Principal | None:
        """None for one that was refused. A page in a browser has no business here; a browser says that it is one."""
        try:
            if "origin" in socket.headers:
                raise ForbiddenError(Scope.RUN)
            principal = await self._authenticator.request(socket)
            if not principal.may(Scope.RUN):
                raise ForbiddenError(Scope.RUN)
        except (NotAuthenticatedError, ForbiddenError, StorageError) as error:
            await _deny(socket, error)
            return None
        return principal

    async def _begin(self, principal: Principal, carrier: AcceptedWebSocket) -> tuple[OpenSandbox, int]:
        async with asyncio.timeout(_FIRST_MESSAGE_SECONDS):
            requested = await receive_greeting(carrier)
        if requested.get("protocol") != PROTOCOL:
            raise UsageError(f"the server speaks protocol {PROTOCOL}, not {requested.get('protocol')!r}")
        if requested.get("do") == "attach":
            return await self._attach(principal, carrier, requested)
        return await self._open(principal, carrier, requested), 0

    async def _open(self, principal: Principal, carrier: AcceptedWebSocket, requested: Header) -> OpenSandbox:
        """A client that hangs up meanwhile gets no sandbox, and does not wait for one that is in use."""
        with _Progress(carrier) as progress:
            opened, token = await _unless_lost(carrier, self._opened(principal, requested, progress))
            await progress.finish()
        answer = {
            "sandbox": opened.id,
            "token": token,
            "linger": opened.times.linger,
            "policy": pack_policy(opened.shown_policy),
            "enforcement": dict(opened.box.enforcement),
        }
        try:
            await carrier.send(frames.encode({"opened": answer}))
        except CarrierLostError:
            await opened.close("abandoned")
            raise
        return opened

    async def _opened(self, principal: Principal, requested: Header, progress: _Progress) -> tuple[OpenSandbox, str]:
        if "fork" in requested:
            return await self._registry.open_fork(principal, str(requested["fork"]), self._trail_of(principal))
        opening = await read_opening(self._database, principal, requested, self._longest, progress.show, self._stores)
        return await self._registry.open(principal, opening, self._trail_of(principal))

    async def _attach(
        self, principal: Principal, carrier: AcceptedWebSocket, requested: Header
    ) -> tuple[OpenSandbox, int]:
        """For the key that opened it alone. A wrong token is the same as a sandbox that never was."""
        opened = await self._registry.find(principal.tenant, str(requested.get("sandbox")))
        received = requested.get("received")
        holder = opened.tokens.holder(str(requested.get("token")))
        if opened.principal.name != principal.name or holder != principal.name:
            raise NoSuchSandboxError
        if type(received) is not int:
            raise UsageError("a client that comes back says what it has received")
        if opened.is_closed:
            raise SandboxClosedError
        await carrier.send(frames.encode({"received": opened.received}))
        return opened, received


class _Progress:
    """Lines of an opening, from any thread, sent while it goes on."""

    def __init__(self, carrier: AcceptedWebSocket) -> None:
        self._carrier = carrier
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._task is not None:
            self._task.cancel()

    def show(self, line: str) -> None:
        self._loop.call_soon_threadsafe(self._add, line)

    def _add(self, line: str) -> None:
        self._lines.put_nowait(line)
        if self._task is None:
            self._task = asyncio.ensure_future(self._send())

    async def finish(self) -> None:
        """All lines that were shown by now are sent."""
        if self._task is not None:
            self._lines.put_nowait(None)
            await self._task

    async def _send(self) -> None:
        while (line := await self._lines.get()) is not None:
            await self._carrier.send(frames.encode({"progress": line}))


async def _deny(socket: WebSocket, error: Exception) -> None:
    await socket.send_denial_response(await answer_problem(HTTPConnection(socket.scope), error))


async def _unless_lost(
    carrier: AcceptedWebSocket, work: Coroutine[None, None, tuple[OpenSandbox, str]]
) -> tuple[OpenSandbox, str]:
    """CarrierLostError if the client hangs up first; it has nothing to say until it has its sandbox."""
    opening, listening = asyncio.ensure_future(work), asyncio.ensure_future(carrier.receive())
    try:
        await asyncio.wait([opening, listening], return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not opening.done():
            opening.cancel()
        listening.cancel()
        await asyncio.gather(opening, listening, return_exceptions=True)
    if not opening.cancelled():
        return opening.result()
    listening.result()
    raise FrameError("a message before the sandbox was open")


async def _send(carrier: AcceptedWebSocket, **answer: Any) -> None:
    with suppress(CarrierLostError):
        await carrier.send(frames.encode(answer))


def _usage(error: FrameError) -> UsageError:
    return UsageError(str(error))
