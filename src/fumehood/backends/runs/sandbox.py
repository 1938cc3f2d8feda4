"""A sandbox as every backend with such runs has it. What differs is how a run is handed over, and what is done when
a guest does not answer any more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TypeVar

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
from fumehood.backends.runs.run_io import RunIO
from fumehood.backends.runs.session import START_SECONDS, RunSession
from fumehood.backends.runs.session_io import SessionIO
from fumehood.guest.contract import wire
from fumehood.policy import Policy

T = TypeVar("T")

_LEAST_FILE_SECONDS = 10.0


class GuestSandbox(ABC):
    """One policy, one workspace, any number of runs."""

    shares_listeners = False
    _is_direct = True
    """Whether programs write to the pipes that the host reads, with nothing in between."""
    languages: Mapping[str, Language] = LANGUAGES
    """Those that it may have; which ones it has, only the guest knows."""

    def __init__(self, policy: Policy, report: EnforcementReport) -> None:
        self._policy = policy
        self._file_services = FileServices(self._open_file_service, self._give_up_if_lost)
        self._keeps_tmp = False
        self.report = report

    def keep_tmp(self) -> None:
        self._keeps_tmp = True

    @abstractmethod
    def expect(self) -> None:
        """A run is about to be started."""

    @abstractmethod
    async def _launched(self, launch: Callable[[], T]) -> T:
        """What `launch` returns, in a guest that is there."""

    @abstractmethod
    def _hand_over(
        self, descriptors: RunDescriptors, wishes: wire.Message, endpoint: EgressEndpoint | None = None
    ) -> None:
        """Ask the guest for a run; whatever goes wrong, nothing of it is left."""

    @abstractmethod
    def change_ports(self, ports: tuple[int, ...]) -> None:
        """Of the listeners of runs under way."""

    @abstractmethod
    async def _give_up(self) -> None:
        """The guest does not answer: end it as a whole. Nothing may refuse that."""

    @abstractmethod
    async def _is_lost(self, overdue_seconds: float) -> bool:
        """Whether the guest does not answer, when something should have ended so many seconds ago.

        Says so within a second if it can tell that the guest was stopped; one that may be merely slow gets more time.
        """

    async def _give_up_if_lost(self) -> None:
        if await self._is_lost(0):
            await self._give_up()

    @property
    def _owner(self) -> int | None:
        """The host's uid of the sandbox's user, where the pipes are to belong to that."""
        return None

    @property
    def image_digest(self) -> str | None:
        return None

    @asynccontextmanager
    async def start(self, request: RunRequest) -> AsyncIterator[RunExecution]:
        execution = await self._launched(partial(self._launch, request))
        try:
            if request.terminal:
                await execution.wait_terminal()
            yield execution
        finally:
            await self._end(execution, request.endpoint)

    @asynccontextmanager
    async def open_session(self, endpoint: EgressEndpoint | None) -> AsyncIterator[RunSession]:
        session = await self._launched(partial(self._launch_session, endpoint))
        try:
            await session.wait_ready()
            yield session
        finally:
            await self._end(session, endpoint)

    def files(self) -> AbstractAsyncContextManager[Conversation]:
        return self._file_services.converse()

    async def _end(self, run: RunExecution | RunSession, endpoint: EgressEndpoint | None) -> None:
        if not await run.end():
            await self._give_up()
        if endpoint:
            self._depart(endpoint)

    @abstractmethod
    def _depart(self, endpoint: EgressEndpoint) -> None:
        """A run that could go out is over."""

    def _launch(self, request: RunRequest) -> RunExecution:
        descriptors = program_descriptors(request, self._owner, self.languages)
        self._hand_over(descriptors, {"timeout": request.timeout_seconds}, request.endpoint)
        stdin = None if request.stdin is Input.LIVE else request.stdin
        io = RunIO(descriptors, stdin, self._policy.resources.output, is_direct=self._is_direct)
        return RunExecution(io, request.timeout_seconds, self._policy.resources, self._is_lost)

    def _launch_session(self, endpoint: EgressEndpoint | None) -> RunSession:
        descriptors = session_descriptors(endpoint, self._owner)
        self._hand_over(descriptors, {"timeout": START_SECONDS, "interruptible": True}, endpoint)
        io = SessionIO(descriptors, self._policy.resources.output, is_direct=self._is_direct)
        return RunSession(io, self._policy.resources, self._is_lost)

    async def _open_file_service(self) -> FileService:
        return await self._launched(self._launch_file_service)

    def _launch_file_service(self) -> FileService:
        descriptors = files_descriptors()
        # What it writes counts as its own memory, although it stays when the service is gone.
        written = self._policy.workspace_bytes + (self._policy.resources.disk if self._keeps_tmp else 0)
        self._hand_over(descriptors, {"timeout": None, "spare_memory_bytes": written})
        # It has the time of a run for each step, or what a large tree or file takes.
        return FileService(descriptors, max(self._policy.resources.timeout, _LEAST_FILE_SECONDS) + 1)
