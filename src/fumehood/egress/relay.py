"""Bytes from one socket to another that nobody looks at: the kernel moves them through a pipe, without copying.

Callbacks rather than tasks, and a pipe only while something moves, so that a connection that waits costs two sockets
and next to nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
from collections.abc import Callable

_CHUNK_BYTES = 1024 * 1024
_KEPT_PIPES = 8
# One busy connection must not keep the others waiting.
_MOST_ROUNDS = 4
_FLAGS = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK


class Pipes:
    """Empty pipes, kept for the next one who needs one."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int]] = []

    def take(self) -> tuple[int, int]:
        if self._free:
            return self._free.pop()
        ends = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # An ordinary user may only have so much; a small pipe is slower and as good.
        with contextlib.suppress(OSError):
            fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, _CHUNK_BYTES)
        return ends

    def give_back(self, ends: tuple[int, int], *, empty: bool) -> None:
        if empty and len(self._free) < _KEPT_PIPES:
            self._free.append(ends)
        else:
            for end in ends:
                os.close(end)

    def close(self) -> None:
        while self._free:
            self.give_back(self._free.pop(), empty=False)


class Pump:
    """One direction. Reads only when what it read before is delivered; the sender feels that as back-pressure."""

    def __init__(self, source: socket.socket, sink: socket.socket, pipes: Pipes, relay: Relay) -> None:
        self._source, self._sink, self._pipes, self._relay = source, sink, pipes, relay
        self._loop = asyncio.get_running_loop()
        self._pipe: tuple[int, int] | None = None
        self._held = 0
        self._ended = False
        self.done = False

    def start(self) -> None:
        self._loop.add_reader(self._source, self._run)

    def stop(self) -> None:
        self._loop.remove_reader(self._source)
        self._loop.remove_writer(self._sink)
        self._release()
        self.done = True

    def _run(self) -> None:
        try:
            for _ in range(_MOST_ROUNDS):
                if not self._pull() or not self._push():
                    break
        except Exception as error:
            self._relay.finish(error)
            return
        if not self._held:
            self._release()
            if self._ended:
                self._pass_on_the_end()

    def _pull(self) -> bool:
        """Whether there is something to deliver."""
        if self._pipe is None:
            self._pipe = self._pipes.take()
        try:
            moved = os.splice(self._source.fileno(), self._pipe[1], self._relay.allowance(_CHUNK_BYTES), flags=_FLAGS)
        except BlockingIOError:
            return False
        self._relay.count(moved)
        self._held += moved
        self._ended = not moved
        return bool(moved)

    def _push(self) -> bool:
        """Whether everything is delivered; if not, this goes on when there is room."""
        assert self._pipe is not None
        try:
            while self._held:
                self._held -= os.splice(self._pipe[0], self._sink.fileno(), self._held, flags=_FLAGS)
        except BlockingIOError:
            self._loop.remove_reader(self._source)
            self._loop.add_writer(self._sink, self._resume)
            return False
        return True

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

    def _release(self) -> None:
        if self._pipe is not None:
            self._pipes.give_back(self._pipe, empty=not self._held)
            self._pipe = None


class Relay:
    """Both directions between two sockets. `on_end` is called once, with what went wrong if something did."""

    def __init__(
        self,
        near: socket.socket,
        far: socket.socket,
        pipes: Pipes,
        *,
        allowance: Callable[[int], int],
        count: Callable[[int], None],
        on_end: Callable[[Exception | None], None],
    ) -> None:
        self.allowance, self.count, self._on_end = allowance, count, on_end
        self._pumps = (Pump(near, far, pipes, self), Pump(far, near, pipes, self))
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
