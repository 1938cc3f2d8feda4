"""A relay of bytes from one socket to another that are not inspected.

Callbacks rather than tasks, and one buffer for all, so that a connection that waits costs two sockets and next to
nothing else. They are copied: handing pages on with `splice` takes less of our time, and makes downloads slower.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from fumehood.egress.limits import SandboxMemory

_CHUNK_BYTES = 2 * 1024 * 1024


class RelayBuffer:
    """The bytes that move at this moment, of any relay; one that cannot deliver them keeps a copy."""

    def __init__(self) -> None:
        self._view = memoryview(bytearray(_CHUNK_BYTES))

    def room(self, most: int) -> memoryview:
        return self._view[:most]


class RelayDirection:
    """One direction. Reads only when what it read before is delivered; the sender feels that as back-pressure."""

    def __init__(
        self, source: socket.socket, sink: socket.socket, buffer: RelayBuffer, memory: SandboxMemory, relay: Relay
    ) -> None:
        self._source, self._sink, self._buffer, self._memory, self._relay = source, sink, buffer, memory, relay
        self._loop = asyncio.get_running_loop()
        self._held = buffer.room(0)
        self._copied = 0
        self._ended = False
        self.done = False

    def start(self) -> None:
        self._loop.add_reader(self._source, self._run)

    def stop(self) -> None:
        self._loop.remove_reader(self._source)
        self._loop.remove_writer(self._sink)
        self._account(0)
        self.done = True

    def _run(self) -> None:
        try:
            if self._pull():
                self._push()
        except Exception as error:
            self._relay.finish(error)
            return
        if self._ended:
            self._pass_on_the_end()

    def _pull(self) -> bool:
        """Whether there is something to deliver."""
        try:
            room = self._buffer.room(self._memory.piece(self._relay.allowance(_CHUNK_BYTES)))
            moved = self._source.recv_into(room)
        except BlockingIOError:
            return False
        self._relay.count(moved)
        self._held = room[:moved]
        self._ended = not moved
        return bool(moved)

    def _push(self) -> bool:
        """Whether everything is delivered; if not, this goes on when there is room."""
        try:
            while self._held:
                self._held = self._held[self._sink.send(self._held) :]
        except BlockingIOError:
            if not self._copied:
                self._held = memoryview(bytes(self._held))
                self._loop.remove_reader(self._source)
                self._loop.add_writer(self._sink, self._resume)
            self._account(len(self._held))
            return False
        self._account(0)
        return True

    def _account(self, copied: int) -> None:
        self._memory.hold(copied - self._copied)
        self._copied = copied

    def _resume(self) -> None:
        try:
            if not self._push():
                return
        except OSError as error:
            self._relay.finish(error)
            return
        self._loop.remove_writer(self._sink)
        self._loop.add_reader(self._source, self._run)
        self._run()

    def _pass_on_the_end(self) -> None:
        self.stop()
        try:
            self._sink.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._relay.finish(error)
        else:
            self._relay.half_done()


class Relay:
    """Both directions between two sockets. `on_end` is called once, with what went wrong if something did."""

    def __init__(
        self,
        near: socket.socket,
        far: socket.socket,
        buffer: RelayBuffer,
        memory: SandboxMemory,
        *,
        allowance: Callable[[int], int],
        count: Callable[[int], None],
        on_end: Callable[[Exception | None], None],
    ) -> None:
        self.allowance, self.count, self._on_end = allowance, count, on_end
        self._pumps = (RelayDirection(near, far, buffer, memory, self), RelayDirection(far, near, buffer, memory, self))
        self._finished = False

    def start(self) -> None:
        for pump in self._pumps:
            pump.start()

    def half_done(self) -> None:
        if all(pump.done for pump in self._pumps):
            self.finish()

    def finish(self, error: Exception | None = None) -> None:
        if self._finished:
            return
        self._finished = True
        for pump in self._pumps:
            pump.stop()
        self._on_end(error)
