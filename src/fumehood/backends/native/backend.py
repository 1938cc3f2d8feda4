"""The door of the native backend: opens sandboxes in warm cells and starts runs in them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import anyio.to_thread

from fumehood.backends.interface import EnforcementReport, PackageFolder
from fumehood.backends.mounts import identity, mount_identities
from fumehood.backends.native import blueprint, enforcement
from fumehood.backends.native.cells import Cell, CellGoneError, CellPool
from fumehood.backends.native.machine import Machine, look
from fumehood.backends.runs.descriptors import RunDescriptors
from fumehood.backends.runs.places import Place
from fumehood.errors import SandboxError
from fumehood.guest import wire
from fumehood.policy import Policy

T = TypeVar("T")


class NativeBackend:
    """Shares its cells among all sandboxes that it opens."""

    name = enforcement.BACKEND

    def __init__(self, machine: Machine | None = None) -> None:
        self._machine = machine or look()
        self._pool = CellPool()

    def check(self, policy: Policy) -> None:
        enforcement.decide(policy, self._machine)

    async def has_packages(self, policy: Policy, request: str) -> bool:
        return False

    @asynccontextmanager
    async def open(self, policy: Policy, packages: PackageFolder | None) -> AsyncIterator[NativeSandbox]:
        report = enforcement.decide(policy, self._machine, packages)
        sandbox = NativeSandbox(self._pool, self._machine, policy, packages, report)
        await sandbox.open()
        try:
            yield sandbox
        finally:
            sandbox.close()

    def close(self) -> None:
        self._pool.close()


class NativeSandbox(Place):
    def __init__(
        self,
        pool: CellPool,
        machine: Machine,
        policy: Policy,
        packages: PackageFolder | None,
        report: EnforcementReport,
    ) -> None:
        super().__init__(policy, report)
        self._pool = pool
        self._machine = machine
        self._packages = packages
        self._key = " ".join((policy.digest, _identity(packages), *mount_identities(policy)))
        self._is_used = False

    async def open(self) -> None:
        """Enter a cell; a place in it costs nothing until the first run."""
        cell = self._pool.warm(self._key)
        if cell is None:
            draw = partial(blueprint.draw, self._policy, self._machine, self._packages)
            cell = await anyio.to_thread.run_sync(self._pool.acquire, self._key, self._machine, draw)
        self._cell: Cell = cell
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

    def _hand_over(self, descriptors: RunDescriptors, wishes: wire.Message) -> None:
        usual = {"do": "run", "workspace": self._workspace, "interruptible": False, "spare_memory_bytes": 0}
        try:
            self._cell.send({**usual, **wishes}, descriptors.guest)
        except BaseException:
            descriptors.close()
            raise
        descriptors.close_guest()
        self._is_used = True


def _identity(packages: PackageFolder | None) -> str:
    return f"{packages.digest} {identity(packages.path)}" if packages else "no packages"
