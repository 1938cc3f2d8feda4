"""A sandbox over a link to its guest: starts programs, sessions and file services there."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import anyio

from fumehood.backends.interface import Conversation, EgressEndpoint, EnforcementReport, Input, RunRequest
from fumehood.backends.languages import LANGUAGES, Language
from fumehood.backends.runs.descriptors import (
    RunDescriptors,
    files_descriptors,
    program_descriptors,
    session_descriptors,
)
from fumehood.backends.runs.execution import RunExecution
from fumehood.backends.runs.file_service import FileService, FileServices
from fumehood.backends.runs.link import GuestBusyError, GuestGoneError, GuestLink, Resize
from fumehood.backends.runs.run_io import RunIO
from fumehood.backends.runs.session import START_SECONDS, RunSession
from fumehood.backends.runs.session_io import SessionIO
from fumehood.errors import SandboxError
from fumehood.guest.contract import wire
from fumehood.policy import Policy

_LEAST_FILE_SECONDS = 10.0
_CONNECT_SECONDS = 10.0


class GuestSandbox:
    """One policy, one workspace, any number of runs."""

    def __init__(
        self,
        link: GuestLink,
        policy: Policy,
        report: EnforcementReport,
        *,
        languages: Mapping[str, Language] = LANGUAGES,
        without_python: Callable[[], Exception] | None = None,
        image_digest: str | None = None,
        shares_listeners: bool = False,
        closes_at_once: bool = True,
        is_direct: bool = True,
    ) -> None:
        """`languages` are those that the sandbox may have; which ones it has, only the guest knows.

        `without_python` makes the error for Python code where there is no interpreter. `is_direct` means that programs
        write to the pipes that the host reads, with nothing in between.
        """
        self._link, self._policy = link, policy
        self._without_python = without_python
        self._is_direct = is_direct
        self._file_services = FileServices(self._open_file_service, self._give_up_if_lost)
        self._keeps_tmp = False
        self._is_used = False
        self.report, self.languages = report, languages
        self.image_digest, self.shares_listeners = image_digest, shares_listeners
        self.closes_at_once = closes_at_once

    def keep_tmp(self) -> None:
        self._keeps_tmp = True

    def expect(self) -> None:
        """A run is about to be started."""
        self._link.expect(keeps_tmp=self._keeps_tmp)

    def change_ports(self, ports: tuple[int, ...]) -> None:
        self._link.change_ports(ports)

    async def connect(self, port: int) -> socket.socket:
        with anyio.fail_after(_CONNECT_SECONDS):
            return await self._link.connect(port)

    def files(self) -> AbstractAsyncContextManager[Conversation]:
        return self._file_services.converse()

    def close(self) -> None:
        self._file_services.close()
        self._link.close()

    @asynccontextmanager
    async def start(self, request: RunRequest) -> AsyncIterator[RunExecution]:
        if request.source is not None and request.interpreter is None:
            self._require_python()
        execution = await self._start_program(request)
        try:
            if request.terminal:
                await execution.wait_terminal()
            yield execution
        finally:
            await self._end(execution, request.endpoint)

    @asynccontextmanager
    async def open_session(self, endpoint: EgressEndpoint | None) -> AsyncIterator[RunSession]:
        self._require_python()
        wishes = {"timeout": START_SECONDS, "interruptible": True}
        descriptors, _ = await self._request(partial(session_descriptors, endpoint), wishes, endpoint)
        io = SessionIO(descriptors, self._policy.resources.output, is_direct=self._is_direct)
        session = RunSession(io, self._policy.resources, self._link.is_lost)
        try:
            await session.wait_ready()
            yield session
        finally:
            await self._end(session, endpoint)

    async def _start_program(self, request: RunRequest) -> RunExecution:
        make = partial(program_descriptors, request, languages=self.languages)
        descriptors, resize = await self._request(make, {"timeout": request.timeout_seconds}, request.endpoint)
        stdin = None if request.stdin is Input.LIVE else request.stdin
        io = RunIO(descriptors, stdin, self._policy.resources.output, is_direct=self._is_direct)
        return RunExecution(io, request.timeout_seconds, self._policy.resources, self._link.is_lost, resize)

    async def _open_file_service(self) -> FileService:
        # What it writes counts as its own memory, although it stays when the service is gone.
        written = self._policy.workspace_bytes + (self._policy.resources.disk if self._keeps_tmp else 0)
        descriptors, _ = await self._request(
            lambda _: files_descriptors(), {"timeout": None, "spare_memory_bytes": written}
        )
        # It has the time of a run for each step, or what a large tree or file takes.
        return FileService(descriptors, max(self._policy.resources.timeout, _LEAST_FILE_SECONDS) + 1)

    def _require_python(self) -> None:
        if self._without_python is not None:
            raise self._without_python()

    async def _request(
        self,
        make: Callable[[int | None], RunDescriptors],
        wishes: wire.Message,
        endpoint: EgressEndpoint | None = None,
    ) -> tuple[RunDescriptors, Resize | None]:
        """A sandbox that has not been used yet may move to another guest."""
        try:
            return await self._send_in_turn(make, wishes, endpoint)
        except GuestGoneError:
            if self._is_used or not await self._link.replace():
                said = self._link.last_words()
                raise SandboxError(f"the sandbox is gone and its workspace with it; open a new one. {said}") from None
        try:
            return await self._send_in_turn(make, wishes, endpoint)
        except GuestGoneError:
            raise SandboxError(f"the sandbox ended as it was opened. {self._link.last_words()}") from None

    async def _send_in_turn(
        self, make: Callable[[int | None], RunDescriptors], wishes: wire.Message, endpoint: EgressEndpoint | None
    ) -> tuple[RunDescriptors, Resize | None]:
        while True:
            try:
                return self._send(make, wishes, endpoint)
            except GuestBusyError:
                await self._link.wait_for_room()

    def _send(
        self, make: Callable[[int | None], RunDescriptors], wishes: wire.Message, endpoint: EgressEndpoint | None
    ) -> tuple[RunDescriptors, Resize | None]:
        """Without an await in between: a cancelled caller leaves nothing behind."""
        descriptors = make(self._link.owner)
        try:
            request = {"interruptible": False, "keeps_tmp": self._keeps_tmp, **wishes}
            resize = self._link.send(request, descriptors, endpoint)
        except BaseException:
            descriptors.close()
            raise
        descriptors.close_guest()
        self._is_used = True
        return descriptors, resize

    async def _end(self, run: RunExecution | RunSession, endpoint: EgressEndpoint | None) -> None:
        if not await run.end():
            await self._link.give_up()
        if endpoint:
            self._link.finish(endpoint)

    async def _give_up_if_lost(self) -> None:
        if await self._link.is_lost(0):
            await self._link.give_up()
