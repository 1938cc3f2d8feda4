"""A published port: a listener on the host's loopback, and the connections that it has accepted.

Lives in the gateway's thread; `open`, `close` and what they return are for other threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable

from fumehood.audit.trail import Trail
from fumehood.egress import Gateway
from fumehood.egress.http1 import MalformedMessageError
from fumehood.egress.limits import SandboxMemory
from fumehood.egress.log import UnreachableError
from fumehood.egress.streams import PlainStream, reset, silence
from fumehood.errors import AuditError, StepFailedError
from fumehood.guest.contract.limits import LOOPBACK
from fumehood.ingress.access import Access
from fumehood.ingress.exchange import CountedStream, PortExchange
from fumehood.ingress.log import PortClosed, PortExposed, PortLog

MOST_CONNECTIONS = 128
_BACKLOG = 128
_MOST_AT_ONCE = 64
_PAUSE_SECONDS = 0.1
_WRITE_SECONDS = 2.0
_log = logging.getLogger(__name__)


class PortServer:
    """One port of one sandbox. `connect` opens a connection to it, from the gateway's thread.

    With `client_port` its address is that port of another machine's loopback, where a client of ours listens: nothing
    listens here, and connections come by `admit`.
    """

    def __init__(
        self,
        gateway: Gateway,
        port: int,
        connect: Callable[[], Awaitable[socket.socket]],
        client_port: int | None = None,
    ) -> None:
        self._gateway, self._connect, self.port = gateway, connect, port
        self._memory = SandboxMemory(gateway.limits.memory_bytes, gateway.memory)
        self._listener = _listen() if client_port is None else None
        self.access = Access(port, client_port or _port_of(self._listener))
        self._log = PortLog(port)
        self._trail = Trail()
        self._connections: dict[asyncio.Task[None], _Client] = {}
        self._writing: asyncio.Task[None] | None = None
        self._recording = asyncio.Lock()
        self._is_closed = False

    def open(self, trail: Trail) -> None:
        """Blocks; the record of it is written before anything is accepted."""
        try:
            place = self.access.address if self._listener else f"{self.access.address} of the client"
            trail.write_blocking(PortExposed(self.port, place))
            self._trail = trail
            self._gateway.start()
            self._gateway.wait(self._open)
        except BaseException:
            if self._listener is not None:
                self._listener.close()
            raise

    def close(self) -> None:
        """Blocks until nothing of it is left and all is recorded."""
        try:
            self._gateway.wait(self._close)
        except StepFailedError:  # its thread hangs or is gone; nothing may go on for that
            if self._listener is not None:
                silence(self._listener)
            for client in list(self._connections.values()):
                silence(client.connection)
        self._trail.write_blocking(*self._log.take(), PortClosed(self.port))

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        self._gateway.ports.add(self)
        self._gateway.connections.holders.add(self)
        self._writing = loop.create_task(self._write())
        if self._listener is not None:
            loop.add_reader(self._listener, self._accept, self._listener)

    async def _close(self) -> None:
        tasks = list(self._connections)
        async with self._recording:
            self.cut()
        if tasks:
            await asyncio.wait(tasks)

    def cut(self) -> None:
        """In the gateway's thread: end everything at once, and wait for nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            silence(self._listener)  # for a forked child too, which has a copy
            self._listener.close()
        self._gateway.ports.discard(self)
        self._gateway.connections.holders.discard(self)
        if self._writing is not None:
            self._writing.cancel()
        for task, client in self._connections.items():
            silence(client.connection)
            task.cancel()

    async def _write(self) -> None:
        """A port whose use cannot be recorded is closed."""
        while True:
            await asyncio.sleep(_WRITE_SECONDS)
            async with self._recording:
                try:
                    await self._trail.write(*self._log.take())
                except AuditError as error:
                    _log.error("published port %d is closed: the audit log cannot be written: %s", self.port, error)
                    self.cut()
                    return

    def admit(self, connection: socket.socket) -> None:
        """From any thread: a connection that was accepted elsewhere. It is judged as one that was accepted here."""
        try:
            self._gateway.call(self._admit_or_close, connection)
        except StepFailedError:
            connection.close()
            raise

    def _admit_or_close(self, connection: socket.socket) -> None:
        if self._is_closed:
            connection.close()
        else:
            self._admit(connection)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_MOST_AT_ONCE):
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError:
                # Mostly that descriptors or memory are used up; spinning would not make it better.
                self._pause(listener)
                return
            self._admit(connection)

    def _pause(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        loop.call_later(_PAUSE_SECONDS, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        if not self._is_closed:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _admit(self, connection: socket.socket) -> None:
        if not self._has_room():
            self._log.refused("there are as many connections as there may be")
            reset(connection)
            return
        connection.setblocking(False)
        _send_at_once(connection)
        client = _Client(connection)
        task = asyncio.get_running_loop().create_task(self._serve(client))
        self._connections[task] = client
        self._gateway.connections.count += 1
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._gateway.connections.count -= 1
        # A task that is cancelled before its first step has closed nothing.
        self._connections.pop(task).connection.close()

    def _has_room(self) -> bool:
        """One without a token makes room: whoever has none must not keep those out who have it."""
        if len(self._connections) >= MOST_CONNECTIONS:
            return self.give_up_stranger()
        return self._gateway.connections.has_room_for_stranger()

    @property
    def party(self) -> object:
        return self._trail.tenant or self

    @property
    def count(self) -> int:
        return len(self._connections)

    def give_up_stranger(self) -> bool:
        """Ends a connection without a token, if there is one."""
        return self._give_up(lambda client: not client.is_admitted)

    def give_up_one(self) -> bool:
        """Ends the oldest connection, for a sandbox's sake."""
        return self._give_up(lambda client: True)

    def _give_up(self, is_meant: Callable[[_Client], bool]) -> bool:
        for task, client in self._connections.items():
            if is_meant(client) and not client.is_ending:
                client.is_ending = True
                silence(client.connection)
                task.cancel()
                return True
        return False

    async def _serve(self, client: _Client) -> None:
        exchange = PortExchange(
            CountedStream(client.connection, self._memory),
            self.access,
            self._reach,
            self._gateway.limits,
            self._log,
            client.admit,
        )
        try:
            await exchange.run()
        except (OSError, TimeoutError, UnreachableError, MalformedMessageError, ssl.SSLError):
            reset(client.connection)
        except Exception as error:
            # The text of a stranger's exception could hold anything.
            _log.error("a connection to a published port was closed: unexpected %s", type(error).__name__)
            reset(client.connection)
        finally:
            exchange.close()

    async def _reach(self) -> PlainStream:
        connection = await self._connect()
        connection.setblocking(False)
        _send_at_once(connection)
        return PlainStream(connection, None, self._memory)


def _listen() -> socket.socket:
    listener = socket.create_server((LOOPBACK, 0), backlog=_BACKLOG)
    listener.setblocking(False)
    return listener


def _port_of(listener: socket.socket | None) -> int:
    assert listener is not None
    return listener.getsockname()[1]


def _send_at_once(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # a container's, or a client's elsewhere, is not TCP
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class _Client:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.is_admitted = self.is_ending = False

    def admit(self) -> None:
        self.is_admitted = True
