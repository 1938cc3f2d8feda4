"""One running program: steps its I/O whenever there is something to do, and reports its outcome."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
import time
from collections.abc import AsyncIterator, Callable

import anyio

from fumehood.backends.interface import Output, TerminalSize
from fumehood.backends.outcome import HostView, decide_outcome
from fumehood.backends.runs.run_io import RunIO
from fumehood.backends.runs.watchdog import GuestLostError, IsLost, Watchdog
from fumehood.errors import StepFailedError, UsageError
from fumehood.policy import Resources
from fumehood.results import Outcome

_KILL_PATIENCE_SECONDS = 5.0
_SHORT_SECONDS = 0.01
_REST_SECONDS = 5.0
_MOST_AT_ONCE = 1024 * 1024


class RunExecution:
    """A run, from the moment its request was sent."""

    def __init__(
        self,
        io: RunIO,
        timeout_seconds: float,
        resources: Resources,
        is_lost: IsLost,
        resize: Callable[[TerminalSize], None] | None = None,
    ) -> None:
        """`resize` is for a terminal that is not on this machine."""
        self._io = io
        self._watchdog = Watchdog(is_lost, timeout_seconds)
        self._timeout_seconds = timeout_seconds
        self._resources = resources
        self._started = time.perf_counter()
        self._ended: float | None = None
        self._cancelled = False
        self._is_listening = False
        self._rest_until: float | None = None
        self._resize = resize
        self._waits = 0
        """How many tasks wait for this run now."""

    async def wait_shortly(self) -> bool:
        with anyio.move_on_after(_SHORT_SECONDS):
            while not self._io.is_answered:
                await anyio.wait_readable(self._io.fileno())
                self._step()
        return self._io.is_answered

    async def output(self) -> AsyncIterator[Output]:
        self._listen()
        while not self.is_over:
            for output in self._step():
                yield output
            if not (self.is_over or self._io.is_ending):
                await self.wait_for_output()

    def _listen(self) -> None:
        if not self._is_listening:
            self._io.listen()
            self._is_listening = True

    async def wait_for_output(self) -> None:
        self._listen()
        await self._wait()

    async def _wait(self) -> None:
        self._waits += 1
        try:
            await self._wait_readable()
        finally:
            self._waits -= 1

    async def _wait_readable(self) -> None:
        if self._rest_until is not None:
            with anyio.move_on_after(self._rest_until - time.monotonic()):
                await anyio.wait_readable(self._io.fileno())
            return
        try:
            await self._watchdog.wait_readable(self._io.fileno())
        except GuestLostError:
            self._io.lose()

    def _step(self) -> list[Output]:
        outputs = self._io.step()
        if self._io.is_answered and not self.is_over:
            self._bound_rest(has_more=bool(outputs))
        if self.is_over and self._ended is None:
            self._ended = time.perf_counter()
        return outputs

    def _bound_rest(self, *, has_more: bool) -> None:
        """The last output is in transit; a missing end of stream must not block the caller."""
        now = time.monotonic()
        if self._rest_until is None or (has_more and not self._io.output_exceeded):
            self._rest_until = now + _REST_SECONDS
        elif now >= self._rest_until:
            self._io.lose()

    def waiting_output(self) -> list[Output]:
        self._listen()
        outputs: list[Output] = []
        size = 0
        # A program that writes as fast as this reads must not fill the memory of a reader who takes a piece at a time.
        while not self.is_over and size < _MOST_AT_ONCE and (more := self._step()):
            outputs += more
            size += sum(len(output.data) for output in more)
        return outputs

    @property
    def is_over(self) -> bool:
        return self._io.is_done

    async def wait_terminal(self) -> None:
        """Until the program's terminal is here, or the run is over without one."""
        while self._io.input is None and not self._io.is_answered:
            await self._wait()
            self._io.step()

    async def write(self, data: bytes) -> None:
        pending = memoryview(data)
        while pending and self._io.input is not None:
            try:
                pending = pending[os.write(self._io.input, pending) :]
            except BlockingIOError:
                await anyio.wait_writable(self._io.input)
            except OSError:
                return  # the program has closed its input

    def close_input(self) -> None:
        self._io.close_input()

    def send_signal(self, number: int) -> None:
        self._io.send({"do": "signal", "number": number})

    def resize(self, size: TerminalSize) -> None:
        if self._resize:
            self._resize(size)
        elif self._io.input is not None:
            fcntl.ioctl(self._io.input, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))

    def kill(self) -> None:
        self._cancelled = True
        self._io.kill()
        self._watchdog.allow(0)

    async def end(self) -> bool:
        """Kill what still runs and wait for the proof; false when there was none."""
        if not self._io.is_answered:
            self.kill()
            with anyio.move_on_after(_KILL_PATIENCE_SECONDS, shield=True):
                while not self._io.is_answered:
                    await self._wait()
                    self._io.step()
        if self._waits:
            anyio.notify_closing(self._io.fileno())
        self._io.close()
        return self._io.is_answered and not self._io.is_lost

    def outcome(self) -> Outcome:
        answer = self._io.answer
        if answer and "failed" in answer:
            raise StepFailedError(answer["failed"], answer["detail"])
        if answer and answer["trouble"] and answer["trouble"]["refusal"]:
            _raise_refusal(answer["trouble"]["refusal"])
        duration_ms = ((self._ended or time.perf_counter()) - self._started) * 1000
        view = HostView(duration_ms, self._io.output_exceeded, self._cancelled, self._io.is_lost)
        return decide_outcome(answer, view, self._resources, self._timeout_seconds)


def _raise_refusal(refusal: dict[str, str]) -> None:
    if "refused" in refusal:
        raise UsageError(refusal["refused"])
    raise StepFailedError(refusal["failed"], refusal["detail"])
