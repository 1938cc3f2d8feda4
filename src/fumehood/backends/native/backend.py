"""The door of the native backend: opens sandboxes in warm cells and starts runs in them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TypeVar

import anyio.to_thread

from fumehood.backends.interface import Conversation, EnforcementReport, Input, PackageFolder, RunRequest
from fumehood.backends.native import blueprint, enforcement
from fumehood.backends.native.cells import Cell, CellGoneError, CellPool
from fumehood.backends.native.descriptors import (
    RunDescriptors,
    files_descriptors,
    program_descriptors,
    session_descriptors,
)
from fumehood.backends.native.execution import NativeExecution
from fumehood.backends.native.file_service import FileService, FileServices
from fumehood.backends.native.machine import Machine, look
from fumehood.backends.native.pump import Pump
from fumehood.backends.native.session import START_SECONDS, NativeSession
from fumehood.backends.native.session_pump import SessionPump
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


class NativeSandbox:
    def __init__(
        self,
        pool: CellPool,
        machine: Machine,
        policy: Policy,
        packages: PackageFolder | None,
        report: EnforcementReport,
    ) -> None:
        self._pool = pool
        self._machine = machine
        self._policy = policy
        self._packages = packages
        self._key = " ".join((policy.digest, _identity(packages), *blueprint.mount_identities(policy)))
        self._is_used = False
        self._file_services = FileServices(self._open_file_service)
        self.report = report

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

    @asynccontextmanager
    async def start(self, request: RunRequest) -> AsyncIterator[NativeExecution]:
        execution = await self._in_a_cell(partial(self._launch, request))
        try:
            if request.terminal:
                await execution.wait_terminal()
            yield execution
        finally:
            await self._end(execution)

    @asynccontextmanager
    async def open_session(self) -> AsyncIterator[NativeSession]:
        session = await self._in_a_cell(self._launch_session)
        try:
            await session.wait_ready()
            yield session
        finally:
            await self._end(session)

    async def _end(self, run: NativeExecution | NativeSession) -> None:
        if not await run.end():
            # The cell does not answer: end it as a whole, which the kernel cannot refuse.
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._pool.retire, self._key, self._cell)

    async def _in_a_cell(self, launch: Callable[[], T]) -> T:
        """A sandbox that has not been used yet does not mind being in another one."""
        try:
            return launch()
        except CellGoneError:
            if self._is_used:
                said = self._cell.last_words()
                raise SandboxError(f"the sandbox is gone and its workspace with it; open a new one. {said}") from None
            await anyio.to_thread.run_sync(self._pool.retire, self._key, self._cell)
            await self.open()
            return launch()

    def _launch(self, request: RunRequest) -> NativeExecution:
        descriptors = program_descriptors(request, self._cell.sandbox_owner)
        self._hand_over(descriptors, {"timeout": request.timeout_seconds})
        stdin = None if request.stdin is Input.LIVE else request.stdin
        pump = Pump(descriptors, stdin, self._policy.resources.output)
        return NativeExecution(pump, request.timeout_seconds, self._policy.resources)

    def files(self) -> AbstractAsyncContextManager[Conversation]:
        return self._file_services.converse()

    async def _open_file_service(self) -> FileService:
        return await self._in_a_cell(self._launch_file_service)

    def _launch_file_service(self) -> FileService:
        descriptors = files_descriptors()
        # What it writes counts as its own memory, although it stays when the service is gone.
        self._hand_over(descriptors, {"timeout": None, "spare_memory_bytes": self._policy.workspace_bytes})
        return FileService(descriptors)

    def _launch_session(self) -> NativeSession:
        descriptors = session_descriptors(self._cell.sandbox_owner)
        self._hand_over(descriptors, {"timeout": START_SECONDS, "interruptible": True})
        return NativeSession(SessionPump(descriptors, self._policy.resources.output), self._policy.resources)

    def _hand_over(self, descriptors: RunDescriptors, wishes: wire.Message) -> None:
        """Ask the cell for a run; whatever goes wrong, nothing of it is left."""
        usual = {"do": "run", "workspace": self._workspace, "interruptible": False, "spare_memory_bytes": 0}
        try:
            self._cell.send({**usual, **wishes}, descriptors.guest)
        except BaseException:
            descriptors.close()
            raise
        descriptors.close_guest()
        self._is_used = True


def _identity(packages: PackageFolder | None) -> str:
    return f"{packages.digest} {blueprint.identity(packages.path)}" if packages else "no packages"
