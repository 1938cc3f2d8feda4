"""The link to a guest behind a bridge: requests go to the bridge, in the backend's loop."""

from __future__ import annotations

import asyncio
import os
import socket
from functools import partial
from typing import Any, Protocol

import anyio.to_thread

from fumehood.backends.interface import EgressEndpoint, TerminalSize
from fumehood.backends.relay.bridge import Bridge
from fumehood.backends.runs.descriptors import RunDescriptors
from fumehood.backends.runs.link import GuestGoneError, Resize, receive_socket
from fumehood.guest.contract import wire


class RelayGuest(Protocol):
    """What a guest is in, and the bridge to it. Belongs to the backend's event loop."""

    @property
    def bridge(self) -> Bridge: ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def is_alive(self) -> bool: ...

    async def answers(self) -> bool:
        """Whether the guest answers now."""
        ...

    async def is_lost(self, overdue_seconds: float) -> bool:
        """Whether its guest does not answer, or a run goes on although the guest should have ended it long ago."""
        ...

    async def close(self) -> None:
        """Ends it: when this returns, nothing of it is left."""
        ...


class RelayLink:
    """Meets `GuestLink`."""

    owner = None

    def __init__(self, portal: Any, guest: RelayGuest) -> None:
        self._portal = portal
        self._guest = guest
        self._loop = guest.loop
        self._next_terminal = 0
        self._is_given_up = False

    def send(
        self, request: wire.Message, descriptors: RunDescriptors, endpoint: EgressEndpoint | None
    ) -> Resize | None:
        if self._is_given_up or not self._guest.is_alive:
            raise GuestGoneError
        bridge = self._guest.bridge
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
        self._loop.call_soon_threadsafe(self._guest.bridge.resize, terminal, size)

    async def wait_for_room(self) -> None:
        """The bridge has room for any request."""

    def expect(self, *, keeps_tmp: bool) -> None:
        """All runs share one workspace: there is nothing to prepare."""

    def finish(self, endpoint: EgressEndpoint) -> None:
        self._loop.call_soon_threadsafe(self._guest.bridge.close_listeners, endpoint)

    def change_ports(self, ports: tuple[int, ...]) -> None:
        self._loop.call_soon_threadsafe(self._guest.bridge.change_ports, ports)

    async def connect(self, port: int) -> socket.socket:
        ours, theirs = wire.socket_pair()
        with ours:
            self._loop.call_soon_threadsafe(self._guest.bridge.connect, port, theirs)
            return await receive_socket(ours)

    async def is_lost(self, overdue_seconds: float) -> bool:
        is_lost = partial(self._portal.call, self._guest.is_lost, overdue_seconds)
        return await anyio.to_thread.run_sync(is_lost, abandon_on_cancel=True)

    async def give_up(self) -> None:
        # The backend's loop closes the guest a little later: until then it would take another run and lose it.
        self._is_given_up = True
        self._portal.start_task_soon(self._guest.close)

    async def replace(self) -> bool:
        return False

    def last_words(self) -> str:
        return self._guest.bridge.last_words()

    def close(self) -> None:
        """The backend disposes of the guest."""
