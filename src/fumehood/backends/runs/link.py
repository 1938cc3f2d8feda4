"""The link to a guest: what a backend provides so that `GuestSandbox` can start runs in it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Protocol

import anyio

from fumehood.backends.interface import EgressEndpoint, TerminalSize
from fumehood.backends.runs.descriptors import RunDescriptors
from fumehood.guest.contract import wire

Resize = Callable[[TerminalSize], None]


class GuestGoneError(Exception):
    """The guest has ended and has not taken the request."""


class GuestBusyError(Exception):
    """The guest has not taken the request because it has not read those before."""


class GuestLink(Protocol):
    """Sends requests to one guest. Methods that are not async do not wait."""

    @property
    def owner(self) -> int | None:
        """The host's uid of the sandbox's user, if the run's pipes must belong to it."""
        ...

    def send(
        self, request: wire.Message, descriptors: RunDescriptors, endpoint: EgressEndpoint | None
    ) -> Resize | None:
        """Requests a run; `descriptors.guest` are copied.

        Raises GuestGoneError if there is no guest to take it, GuestBusyError if the guest has no room for it now.
        Returns how the run's terminal is resized, if that is not on this machine.
        """
        ...

    async def wait_for_room(self) -> None:
        """Until a busy guest may have room for a request, or for a while. GuestGoneError if it is stopped."""
        ...

    def expect(self, *, keeps_tmp: bool) -> None:
        """A run is about to be requested."""
        ...

    def finish(self, endpoint: EgressEndpoint) -> None:
        """A run with this endpoint is over."""
        ...

    def change_ports(self, ports: tuple[int, ...]) -> None:
        """Changes the ports of the listeners of running programs."""
        ...

    async def connect(self, port: int) -> socket.socket:
        """A connection to a port of the sandbox's loopback; ConnectionError if no program listens there."""
        ...

    async def is_lost(self, overdue_seconds: float) -> bool:
        """Whether the guest does not answer, when something should have ended so many seconds ago.

        Returns within a second if the guest is known to be stopped; one that may be merely slow gets more time.
        """
        ...

    async def give_up(self) -> None:
        """Ends a guest that does not answer. Must not fail."""
        ...

    async def replace(self) -> bool:
        """Links to another guest instead of one that is gone, for a sandbox that has not been used; False if not."""
        ...

    def last_words(self) -> str:
        """What the guest wrote to its standard error last."""
        ...

    def close(self) -> None: ...


async def receive_socket(channel: socket.socket) -> socket.socket:
    """The socket that a guest, or what carries for it, sends as the answer to a request for one."""
    channel.setblocking(False)
    await anyio.wait_readable(channel)
    try:
        _, descriptors = wire.receive(channel)
    except (OSError, ValueError):
        descriptors = []
    if not descriptors:
        raise ConnectionRefusedError("no program of the sandbox listens there")
    wire.close_all(descriptors[1:])
    received = socket.socket(fileno=descriptors[0])
    received.setblocking(False)
    return received
