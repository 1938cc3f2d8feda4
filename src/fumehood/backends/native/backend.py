"""The entry point of the native backend: opens sandboxes in warm cells and starts runs in them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TypeVar

import anyio.to_thread

from fumehood.backends.interface import EgressEndpoint, EnforcementReport, PackageFolder
from fumehood.backends.mounts import identity, mount_identities, refuse_sockets_aside
from fumehood.backends.native import enforcement
from fumehood.backends.native.cell_spec import build_cell_spec
from fumehood.backends.native.cells import CellGoneError, CellPool, CellProcess
from fumehood.backends.native.host_facts import HostFacts, detect
from fumehood.backends.native.prestart import Prestart
from fumehood.backends.runs.descriptors import RunDescriptors
from fumehood.backends.runs.sandbox import GuestSandbox
from fumehood.errors import SandboxError
from fumehood.guest.contract import wire
from fumehood.guest.contract.cell_spec import CellSpec
from fumehood.policy import Policy

T = TypeVar("T")


class NativeBackend:
    """Shares its cells among all sandboxes that it opens."""

    name = enforcement.BACKEND

    def __init__(self, facts: HostFacts | None = None) -> None:
        self._facts = facts or detect()
        self._pool = CellPool()

    def use_prestart(self, prestart: Prestart) -> None:
        """The next cell starts with its interpreter."""
        self._pool.prestart = prestart

    def check(self, policy: Policy) -> None:
        enforcement.decide(policy, self._facts)

    async def has_packages(self, policy: Policy, request: str) -> bool:
        return False

    @asynccontextmanager
    async def open(
        self, policy: Policy, packages: PackageFolder | None, ports: tuple[int, ...] = ()
    ) -> AsyncIterator[NativeSandbox]:
        are_searched = await refuse_sockets_aside(policy, enforcement.BACKEND)
        report = enforcement.decide(policy, self._facts, packages, mounts_are_searched=are_searched)
        build_spec = partial(build_cell_spec, policy, self._facts, packages, ports)
        key = " ".join((policy.digest, _identity(packages), f"ports {ports}", *mount_identities(policy)))
        sandbox = NativeSandbox(self._pool, self._facts, policy, key, build_spec, report)
        await sandbox.open()
        try:
            yield sandbox
        finally:
            sandbox.close()

    def close(self) -> None:
        self._pool.close()


class NativeSandbox(GuestSandbox):
    def __init__(
        self,
        pool: CellPool,
        facts: HostFacts,
        policy: Policy,
        key: str,
        build_spec: Callable[[], CellSpec],
        report: EnforcementReport,
    ) -> None:
        super().__init__(policy, report)
        self._pool = pool
        self._facts = facts
        self._build_spec = build_spec
        self._key = key
        self._is_used = False

    async def open(self) -> None:
        """Enter a cell; a place in it costs nothing until the first run."""
        cell = self._pool.warm(self._key)
        if cell is None:
            cell = await anyio.to_thread.run_sync(self._pool.acquire, self._key, self._facts, self._build_spec)
        self._cell: CellProcess = cell
        self._workspace = cell.open_workspace()

    def close(self) -> None:
        self._file_services.close()
        self._cell.close_workspace(self._workspace)

    @property
    def _owner(self) -> int | None:
        return self._cell.sandbox_owner

    async def _give_up(self) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._pool.retire, self._key, self._cell)

    async def _is_lost(self, overdue_seconds: float) -> bool:
        """A cell that answers ends its runs, however long they had to wait for a place in it."""
        return await anyio.to_thread.run_sync(self._cell.is_lost, abandon_on_cancel=True)

    async def _launched(self, launch: Callable[[], T]) -> T:
        """A sandbox that has not been used yet does not mind being in another cell."""
        try:
            return launch()
        except CellGoneError:
            if self._is_used:
                said = self._cell.last_words()
                raise SandboxError(f"the sandbox is gone and its workspace with it; open a new one. {said}") from None
            await anyio.to_thread.run_sync(self._pool.retire, self._key, self._cell)
            await self.open()
            return launch()

    def _hand_over(
        self, descriptors: RunDescriptors, wishes: wire.Message, endpoint: EgressEndpoint | None = None
    ) -> None:
        usual = {"do": "run", "interruptible": False, "spare_memory_bytes": 0}
        where = {"workspace": self._workspace, "keeps_tmp": self._keeps_tmp}
        try:
            with ExitStack() as stack:
                ports, listeners = _listener_channel(endpoint, stack)
                self._cell.send({**usual, **where, **wishes, "ports": ports}, (*descriptors.guest, *listeners))
        except BaseException:
            descriptors.close()
            raise
        descriptors.close_guest()
        self._is_used = True

    def expect(self) -> None:
        self._cell.hint({"do": "expect", "workspace": self._workspace, "keeps_tmp": self._keeps_tmp})

    def _depart(self, endpoint: EgressEndpoint) -> None:
        """Its listeners were in its own network namespace, and nobody is left to knock."""

    def change_ports(self, ports: tuple[int, ...]) -> None:
        with suppress(CellGoneError):  # and its runs with it
            self._cell.send({"do": "ports", "workspace": self._workspace, "ports": list(ports)})


def _listener_channel(endpoint: EgressEndpoint | None, stack: ExitStack) -> tuple[list[int], tuple[int, ...]]:
    """The ports, and the end of a line to the gateway that the cell is to pass listening sockets through."""
    if endpoint is None:
        return [], ()
    ours, theirs = wire.socket_pair()
    stack.enter_context(theirs)
    endpoint.acceptor.receive_listeners(ours)
    return list(endpoint.ports), (theirs.fileno(),)


def _identity(packages: PackageFolder | None) -> str:
    return f"{packages.digest} {identity(packages.path)}" if packages else "no packages"
