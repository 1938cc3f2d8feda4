"""One run under way: moves its bytes, holds its limit on output, and knows how it ended.

`Pump` does the work without an event loop: it never waits. `NativeExecution` lets it work whenever there is something.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import anyio

from fumehood.backends.interface import Output
from fumehood.backends.native.feed import Feed
from fumehood.backends.verdict import HostView, judge
from fumehood.errors import StepFailedError, UsageError
from fumehood.policy import Resources
from fumehood.results import Outcome

_CHUNK_BYTES = 64 * 1024
_KILL_PATIENCE_SECONDS = 5.0
_SHORT_SECONDS = 0.01
# The cell keeps the time, from the moment that it has a place for the run; we act only when it is silent far too long.
_OVERTIME_SECONDS = 30.0


class Pump:
    """Reads the run's output and its answer, feeds its input. Owns the descriptors it is given."""

    def __init__(self, reply: socket.socket, stdout: int, stderr: int, feed: Feed | None, output_limit: int) -> None:
        self._reply = reply
        self._streams = {stdout: 1, stderr: 2}
        self._feed = feed
        self._room = output_limit
        self._epoll = select.epoll()
        self.answer: dict[str, Any] | None = None
        self.is_answered = False
        self.output_exceeded = False
        self._epoll.register(reply.fileno(), select.EPOLLIN)
        if feed:
            feed.start(self._epoll)

    def listen(self) -> None:
        """Wake up for output from now on, and not only for the end."""
        for descriptor in self._streams:
            self._epoll.register(descriptor, select.EPOLLIN)

    def fileno(self) -> int:
        """Readable whenever `step` has something to do."""
        return self._epoll.fileno()

    @property
    def is_done(self) -> bool:
        return self.is_answered and not self._streams

    def step(self) -> list[Output]:
        """Take what is there, at most one chunk of each stream."""
        outputs: list[Output] = []
        for descriptor, _ in self._epoll.poll(0):
            if descriptor == self._reply.fileno():
                self._read_answer()
            elif descriptor in self._streams:
                outputs += self._read_stream(descriptor)
            elif self._feed:
                self._feed.step(descriptor)
        return outputs

    def _read_stream(self, descriptor: int) -> list[Output]:
        try:
            data = os.read(descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return []  # the program was quicker and took it back
        stream = self._streams[descriptor]
        if not data:
            self._epoll.unregister(descriptor)
            del self._streams[descriptor]
            os.close(descriptor)
            return []
        if len(data) > self._room:
            self.output_exceeded = True
            self.kill()
        data, self._room = data[: self._room], max(0, self._room - len(data))
        return [Output(stream, data)] if data else []

    def _read_answer(self) -> None:
        with suppress(ConnectionResetError):
            data = self._reply.recv(_CHUNK_BYTES)
            self.answer = json.loads(data) if data else None
        self.is_answered = True
        self._epoll.unregister(self._reply)

    def kill(self) -> None:
        """Any word on the reply socket asks the cell to end the run."""
        with suppress(OSError):
            self._reply.send(b"kill")

    def close(self) -> None:
        if self._feed:
            self._feed.close()
        self._epoll.close()
        self._reply.close()
        for descriptor in self._streams:
            os.close(descriptor)
        self._streams = {}


class NativeExecution:
    """A run in a cell, from the moment its request was sent."""

    def __init__(self, pump: Pump, timeout_seconds: float, resources: Resources) -> None:
        self._pump = pump
        self._timeout_seconds = timeout_seconds
        self._resources = resources
        self._started = time.perf_counter()
        self._ended: float | None = None
        self._cancelled = False

    async def output(self, *, live: bool) -> AsyncIterator[Output]:
        if not live:
            # Most programs are short: one wake-up for all that they wrote is cheaper than one for each line.
            with anyio.move_on_after(_SHORT_SECONDS):
                await anyio.wait_readable(self._pump.fileno())
        self._pump.listen()
        while not self._pump.is_done:
            await self._wait_for_something()
            for output in self._pump.step():
                yield output
        self._ended = time.perf_counter()

    async def _wait_for_something(self) -> None:
        with anyio.move_on_after(self._timeout_seconds + _OVERTIME_SECONDS):
            await anyio.wait_readable(self._pump.fileno())
            return
        raise StepFailedError("stopping a run at its time limit", "the cell did not answer")

    async def end(self) -> bool:
        """Kill what still runs and wait for the proof; false when there was none."""
        if not self._pump.is_answered:
            self._cancelled = True
            self._pump.kill()
        with anyio.move_on_after(_KILL_PATIENCE_SECONDS, shield=True):
            while not self._pump.is_answered:
                await anyio.wait_readable(self._pump.fileno())
                self._pump.step()
        self._pump.close()
        return self._pump.is_answered

    def outcome(self) -> Outcome:
        answer = self._pump.answer
        if answer and "failed" in answer:
            raise StepFailedError(answer["failed"], answer["detail"])
        if answer and answer["trouble"] and answer["trouble"]["refusal"]:
            _raise_refusal(answer["trouble"]["refusal"])
        duration_ms = ((self._ended or time.perf_counter()) - self._started) * 1000
        view = HostView(duration_ms, self._pump.output_exceeded, self._cancelled)
        return judge(answer, view, self._resources, self._timeout_seconds)


def _raise_refusal(refusal: dict[str, str]) -> None:
    if "refused" in refusal:
        raise UsageError(refusal["refused"])
    raise StepFailedError(refusal["failed"], refusal["detail"])
