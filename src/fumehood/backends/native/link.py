"""The link to a cell: a workspace in a warm cell of the pool, and messages over the cell's control socket."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import anyio
import anyio.to_thread

from fumehood.backends.interface import EgressEndpoint
from fumehood.backends.native.cells import CellPool, CellProcess
from fumehood.backends.native.host_facts import HostFacts
from fumehood.backends.runs.descriptors import RunDescriptors
from fumehood.backends.runs.link import GuestBusyError, GuestGoneError, receive_socket
from fumehood.guest.contract import wire
from fumehood.guest.contract.cell_spec import CellSpec
from fumehood.tenant import LOCAL, Tenant


class CellLink:
    """Meets `GuestLink`. A workspace in a cell costs nothing until the first run."""

    def __init__(
        self, pool: CellPool, facts: HostFacts, key: str, build_spec: Callable[[], CellSpec], tenant: Tenant = LOCAL
    ) -> None:
        self._pool, self._facts, self._tenant = pool, facts, tenant
        self._key, self._build_spec = key, build_spec

    async def open(self) -> None:
        cell = self._pool.warm(self._key)
        if cell is None:
            acquire = partial(self._pool.acquire, self._key, self._facts, self._build_spec, self._tenant)
            cell = await anyio.to_thread.run_sync(acquire)
        self._cell: CellProcess = cell
        self._workspace = cell.open_workspace()

    def close(self) -> None:
        self._cell.close_workspace(self._workspace)

    @property
    def owner(self) -> int | None:
        return self._cell.sandbox_owner

    def send(self, request: wire.Message, descriptors: RunDescriptors, endpoint: EgressEndpoint | None) -> None:
        usual = {"do": "run", "spare_memory_bytes": 0, "workspace": self._workspace}
        with ExitStack() as stack:
            ports, listeners = _listener_channel(endpoint, stack)
            self._cell.send({**usual, **request, "ports": ports}, (*descriptors.guest, *listeners))

    async def wait_for_room(self) -> None:
        """In a thread: tasks of any event loop may wait for the same cell."""
        await anyio.to_thread.run_sync(self._cell.wait_for_room, abandon_on_cancel=True)

    def expect(self, *, keeps_tmp: bool) -> None:
        self._cell.hint({"do": "expect", "workspace": self._workspace, "keeps_tmp": keeps_tmp})

    def finish(self, endpoint: EgressEndpoint) -> None:
        """Its listeners were in the run's own network namespace and are gone with it."""

    def change_ports(self, ports: tuple[int, ...]) -> None:
        self._cell.post({"do": "ports", "workspace": self._workspace, "ports": list(ports)})

    async def connect(self, port: int) -> socket.socket:
        """By a socket that the cell makes in the sandbox's network, and that connects to nothing outside of it."""
        try:
            return await _connected(await self._connector(4), ("127.0.0.1", port))
        except ConnectionRefusedError:
            return await _connected(await self._connector(6), ("::1", port))

    async def _connector(self, version: int) -> socket.socket:
        ours, theirs = wire.socket_pair()
        with ours:
            with theirs:
                await self._send_patiently({"do": "reach", "workspace": self._workspace, "version": version}, theirs)
            return await receive_socket(ours)

    async def _send_patiently(self, message: wire.Message, descriptor: socket.socket) -> None:
        while True:
            try:
                self._cell.send(message, (descriptor.fileno(),))
                return
            except GuestBusyError:
                await self.wait_for_room()
            except GuestGoneError:
                raise ConnectionRefusedError("the sandbox is gone") from None

    async def is_lost(self, overdue_seconds: float) -> bool:
        """A cell that answers ends its runs, however long they had to wait for a place in it."""
        return await anyio.to_thread.run_sync(self._cell.is_lost, abandon_on_cancel=True)

    async def give_up(self) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._pool.retire, self._key, self._cell)

    async def replace(self) -> bool:
        await anyio.to_thread.run_sync(self._pool.retire, self._key, self._cell)
        await self.open()
        return True

    def last_words(self) -> str:
        return self._cell.last_words()


async def _connected(line: socket.socket, address: tuple[str, int]) -> socket.socket:
    try:
        number = line.connect_ex(address)
        if number == errno.EINPROGRESS:
            await anyio.wait_writable(line)
            number = line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise OSError(number, os.strerror(number))
    except BaseException:
        line.close()
        raise
    return line


def _listener_channel(endpoint: EgressEndpoint | None, stack: ExitStack) -> tuple[list[int], tuple[int, ...]]:
    """The ports, and the socket over which the cell passes listening sockets to the gateway."""
    if endpoint is None:
        return [], ()
    ours, theirs = wire.socket_pair()
    stack.enter_context(theirs)
    endpoint.acceptor.receive_listeners(ours)
    return list(endpoint.ports), (theirs.fileno(),)
