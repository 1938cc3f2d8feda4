"""A sandbox in a container: hands its runs to the container's bridge."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import anyio.to_thread

from fumehood.backends.docker import enforcement
from fumehood.backends.docker.configuration import Design
from fumehood.backends.docker.container import Container
from fumehood.backends.interface import EgressEndpoint, EnforcementReport, RunRequest, TerminalSize
from fumehood.backends.languages import LANGUAGES
from fumehood.backends.runs.descriptors import RunDescriptors
from fumehood.backends.runs.execution import RunExecution
from fumehood.backends.runs.sandbox import GuestSandbox
from fumehood.backends.runs.session import RunSession
from fumehood.errors import SandboxError
from fumehood.guest.contract import wire

T = TypeVar("T")


class DockerSandbox(GuestSandbox):
    shares_listeners = True
    _is_direct = False

    def __init__(self, portal: Any, container: Container, design: Design, report: EnforcementReport) -> None:
        super().__init__(design.policy, report)
        self._image = design.image
        if design.lent:
            self.languages = {name: language for name, language in LANGUAGES.items() if name != "python"}
        self._portal = portal
        self._container = container
        self._loop = container.loop
        self._next_terminal = 0

    @property
    def image_digest(self) -> str:
        return self._image.digest

    async def _launched(self, launch: Callable[[], T]) -> T:
        if not self._container.is_alive:
            said = self._container.bridge.last_words()
            raise SandboxError(f"the sandbox is gone and its workspace with it; open a new one. {said}")
        return launch()

    def _hand_over(
        self, descriptors: RunDescriptors, wishes: wire.Message, endpoint: EgressEndpoint | None = None
    ) -> None:
        usual = {"kind": descriptors.kind, "interruptible": False, "keeps_tmp": self._keeps_tmp}
        bridge = self._container.bridge
        reply, request, *others = (os.dup(descriptor) for descriptor in descriptors.guest)
        descriptors.close_guest()
        with open(request, "rb") as stream:
            stream.seek(0)
            content = stream.read()
        if endpoint:
            self._loop.call_soon_threadsafe(bridge.open_listeners, endpoint)
        open_run = partial(bridge.open_run, {**usual, **wishes}, content, [reply, *others], self._next_terminal)
        self._loop.call_soon_threadsafe(open_run)

    def _launch(self, request: RunRequest) -> RunExecution:
        if request.source is not None and request.interpreter is None:
            self._require_python()
        self._next_terminal += 1
        execution = super()._launch(request)
        execution.resize_elsewhere = partial(self._resize, self._next_terminal)
        return execution

    def _launch_session(self, endpoint: EgressEndpoint | None) -> RunSession:
        self._require_python()
        return super()._launch_session(endpoint)

    def _require_python(self) -> None:
        if "python" not in self.languages:
            raise enforcement.without_python(self._image, "Python code cannot run in it; commands and shells can")

    def _resize(self, terminal: int, size: TerminalSize) -> None:
        self._loop.call_soon_threadsafe(self._container.bridge.resize, terminal, size)

    def expect(self) -> None:
        """Its workspace is where all its runs are: there is nothing to prepare."""

    def _depart(self, endpoint: EgressEndpoint) -> None:
        self._loop.call_soon_threadsafe(self._container.bridge.close_listeners, endpoint)

    def change_ports(self, ports: tuple[int, ...]) -> None:
        self._loop.call_soon_threadsafe(self._container.bridge.change_ports, ports)

    async def _is_lost(self, overdue_seconds: float) -> bool:
        is_lost = partial(self._portal.call, self._container.is_lost, overdue_seconds)
        return await anyio.to_thread.run_sync(is_lost, abandon_on_cancel=True)

    async def _give_up(self) -> None:
        self._portal.start_task_soon(self._container.close)

    def close(self) -> None:
        self._file_services.close()
