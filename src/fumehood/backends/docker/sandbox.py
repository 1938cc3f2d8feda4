"""A sandbox in a container, and the link to its guest: requests go to the container's bridge, in the backend's loop."""

from __future__ import annotations

import os
import socket
from functools import partial
from typing import Any

import anyio.to_thread

from fumehood.backends.docker import enforcement
from fumehood.backends.docker.configuration import Design
from fumehood.backends.docker.container import Container
from fumehood.backends.interface import EgressEndpoint, EnforcementReport, TerminalSize
from fumehood.backends.languages import LANGUAGES
from fumehood.backends.runs.descriptors import RunDescriptors
from fumehood.backends.runs.link import GuestGoneError, Resize, receive_socket
from fumehood.backends.runs.sandbox import GuestSandbox
from fumehood.guest.contract import wire


def container_sandbox(portal: Any, container: Container, design: Design, report: EnforcementReport) -> GuestSandbox:
    """Without Python in an image whose interpreter was lent by another: that one is for the guest alone."""
    image = design.image
    why = "Python code cannot run in it; commands and shells can"
    return GuestSandbox(
        ContainerLink(portal, container),
        design.policy,
        report,
        languages={name: each for name, each in LANGUAGES.items() if name != "python"} if design.lent else LANGUAGES,
        without_python=partial(enforcement.without_python, image, why) if design.lent else None,
        image_digest=image.digest,
        shares_listeners=True,
        closes_at_once=False,
        is_direct=False,
    )


class ContainerLink:
    """Meets `GuestLink`."""

    owner = None

    def __init__(self, portal: Any, container: Container) -> None:
        self._portal = portal
        self._container = container
        self._loop = container.loop
        self._next_terminal = 0
        self._is_given_up = False

    def send(
        self, request: wire.Message, descriptors: RunDescriptors, endpoint: EgressEndpoint | None
    ) -> Resize | None:
        if self._is_given_up or not self._container.is_alive:
            raise GuestGoneError
        bridge = self._container.bridge
        reply, data, *others = (os.dup(descriptor) for descriptor in descriptors.guest)
        with open(data, "rb") as stream:
            stream.seek(0)
            content = stream.read()
        self._next_terminal += 1
        if endpoint:
            self._loop.call_soon_threadsafe(bridge.open_listeners, endpoint)
        wishes = {"kind": descriptors.kind, **request}
        open_run = partial(bridge.open_run, wishes, content, [reply, *others], self._next_terminal)
        self._loop.call_soon_threadsafe(open_run)
        return partial(self._resize, self._next_terminal)

    def _resize(self, terminal: int, size: TerminalSize) -> None:
        self._loop.call_soon_threadsafe(self._container.bridge.resize, terminal, size)

    async def wait_for_room(self) -> None:
        """The bridge has room for any request."""

    def expect(self, *, keeps_tmp: bool) -> None:
        """All runs share one workspace: there is nothing to prepare."""

    def finish(self, endpoint: EgressEndpoint) -> None:
        self._loop.call_soon_threadsafe(self._container.bridge.close_listeners, endpoint)

    def change_ports(self, ports: tuple[int, ...]) -> None:
        self._loop.call_soon_threadsafe(self._container.bridge.change_ports, ports)

    async def connect(self, port: int) -> socket.socket:
        ours, theirs = wire.socket_pair()
        with ours:
            self._loop.call_soon_threadsafe(self._container.bridge.connect, port, theirs)
            return await receive_socket(ours)

    async def is_lost(self, overdue_seconds: float) -> bool:
        is_lost = partial(self._portal.call, self._container.is_lost, overdue_seconds)
        return await anyio.to_thread.run_sync(is_lost, abandon_on_cancel=True)

    async def give_up(self) -> None:
        # The backend's loop closes the container a little later: until then it would take another run and lose it.
        self._is_given_up = True
        self._portal.start_task_soon(self._container.close)

    async def replace(self) -> bool:
        return False

    def last_words(self) -> str:
        return self._container.bridge.last_words()

    def close(self) -> None:
        """The backend disposes of the container."""
