"""The host's end of a session: a Python interpreter in the sandbox whose state is kept between runs."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio

from fumehood.backends.interface import Output, RunRequest
from fumehood.backends.outcome import HostView, decide_outcome
from fumehood.backends.runs.session_io import SessionIO
from fumehood.backends.runs.watchdog import GuestLostError, IsLost, Watchdog
from fumehood.errors import StepFailedError
from fumehood.guest.contract import frames
from fumehood.guest.contract.limits import INTERRUPT_GRACE_SECONDS
from fumehood.policy import Resources
from fumehood.results import Display, Outcome

START_SECONDS = 30.0
_END_PATIENCE_SECONDS = 5.0
# Interrupts that are closer together are one: a guest has to deal with each, and may be slow.
_INTERRUPT_SECONDS = 0.05
_EXIT_CODES = range(256)
_MISUSED = "the program closed or misused the socket over which its session gets its commands"


class RunSession:
    """One run at a time. When its process is gone it is of no more use."""

    def __init__(self, io: SessionIO, resources: Resources, is_lost: IsLost) -> None:
        self._io = io
        self._watchdog = Watchdog(is_lost, START_SECONDS)
        self._resources = resources
        self._runs = 0
        self._used_cpu_ms = 0.0
        self._is_interrupt_wanted = False
        self._interrupted_at = 0.0

    @property
    def is_alive(self) -> bool:
        return not self._io.is_answered

    async def wait_ready(self) -> None:
        while self._io.shell is None and self.is_alive:
            await self.step()
        if not self.is_alive:
            answer = self._io.answer or {}
            raise StepFailedError("starting a session", str(answer.get("detail") or "it ended before it was ready"))
        await self.rest()

    @asynccontextmanager
    async def execute(self, request: RunRequest) -> AsyncIterator[SessionExecution]:
        self._runs += 1
        self._is_interrupt_wanted = False
        self._io.begin(self._runs)
        # Its clock starts first: what the guest ends for being late must be late here too.
        execution = SessionExecution(self, self._io, request.timeout_seconds, self._resources)
        self._io.send({"do": "allow", "seconds": request.timeout_seconds})
        self._watchdog.allow(request.timeout_seconds + INTERRUPT_GRACE_SECONDS)
        source, stdin = request.source or b"", request.stdin if isinstance(request.stdin, bytes) else b""
        header = {"do": "execute", "run": self._runs, "source_bytes": len(source)}
        try:
            await self._send(frames.encode(header, source + stdin))
            yield execution
        finally:
            await execution.end()

    def interrupt(self) -> None:
        """Before it has started a run would not notice; then it is interrupted when it has."""
        self._is_interrupt_wanted = True
        self._send_interrupt()

    def _send_interrupt(self) -> None:
        if self._is_interrupt_wanted and self._io.is_started and self._io.done is None:
            self._is_interrupt_wanted = False
            now = time.monotonic()
            if now - self._interrupted_at > _INTERRUPT_SECONDS:
                self._interrupted_at = now
                self._io.send({"do": "interrupt"})

    async def _send(self, data: bytes) -> None:
        try:
            await self._io.send_frame(data, self._watchdog)
        except GuestLostError:
            self._io.lose()

    async def step(self) -> list[Output | Display]:
        """Wait for something, and take it."""
        try:
            await self._watchdog.wait_readable(self._io.fileno())
        except GuestLostError:
            self._io.lose()
        outputs = self._io.step()
        self._send_interrupt()
        return [*outputs, *self._io.take_displays()]

    def hurry(self) -> None:
        """The time of the run under way is over."""
        self._io.send({"do": "allow", "seconds": 0})
        self._watchdog.allow(INTERRUPT_GRACE_SECONDS)

    async def rest(self) -> float:
        """Stop the clock; returns how much CPU time went by, in milliseconds."""
        self._io.send({"do": "rest"})
        self._watchdog.allow(0)
        while self._io.usage is None and self.is_alive:
            await self.step()
        total = self._io.usage["cpu_ms"] if self._io.usage else self._used_cpu_ms
        # A guest that says less than before gets nothing back.
        used = max(0.0, total - self._used_cpu_ms)
        self._used_cpu_ms += used
        return used

    async def end(self) -> bool:
        """Kill what is left; false when there is no proof that it is gone."""
        if self.is_alive:
            self._io.kill()
            self._watchdog.allow(0)
        with anyio.move_on_after(_END_PATIENCE_SECONDS, shield=True):
            while self.is_alive:
                await self.step()
        anyio.notify_closing(self._io.fileno())
        self._io.close()
        return self._io.is_answered and not self._io.is_lost


class SessionExecution:
    """One run in a session."""

    def __init__(self, session: RunSession, io: SessionIO, timeout_seconds: float, resources: Resources) -> None:
        self._session = session
        self._io = io
        self._timeout_seconds = timeout_seconds
        self._resources = resources
        self._started = time.perf_counter()
        self._duration_ms: float | None = None
        self._cpu_ms = 0.0
        self._cancelled = False

    async def output(self) -> AsyncIterator[Output | Display]:
        while self._io.done is None and not self._io.is_done:
            for output in await self._session.step():
                yield output
        self._duration_ms = (time.perf_counter() - self._started) * 1000
        if self._session.is_alive:
            for output in self._io.take_rest():
                yield output
            self._cpu_ms = await self._session.rest()

    async def end(self) -> None:
        """A run that is left is interrupted; its session keeps its state if it obeys."""
        if self._duration_ms is not None or not self._session.is_alive:
            return
        self._cancelled = True
        self._session.hurry()
        with anyio.move_on_after(_END_PATIENCE_SECONDS, shield=True):
            async for _ in self.output():
                pass

    def outcome(self) -> Outcome:
        duration_ms = self._duration_ms or (time.perf_counter() - self._started) * 1000
        done = self._io.done
        is_interrupted = done is not None and done.get("ended") == "interrupted"
        is_late = duration_ms >= self._timeout_seconds * 1000
        is_stopped = is_interrupted and not is_late and not self._io.output_exceeded
        view = HostView(
            duration_ms, self._io.output_exceeded, self._cancelled or is_stopped, self._io.is_lost and done is None
        )
        answer = self._io.answer if done is None else self._answer(done, is_interrupted and is_late)
        if self._io.is_broken and answer and answer["ended_by"] == "wall_time" and not is_late:
            detail = f"{_MISUSED}: {self._io.misuse}" if self._io.misuse else _MISUSED
            return replace(decide_outcome(None, view, self._resources, self._timeout_seconds), detail=detail)
        return decide_outcome(answer, view, self._resources, self._timeout_seconds)

    def _answer(self, done: frames.Header, is_overdue: bool) -> dict[str, Any]:
        """What the session says of itself, in the words that the cell uses for a run of its own."""
        code, exhausted = done.get("code"), done.get("exhausted")
        usage = self._io.usage or {"peak_memory_bytes": 0}
        return {
            "ended_by": "wall_time" if is_overdue else "exit",
            "status": (code if isinstance(code, int) and code in _EXIT_CODES else 1) << 8,
            "cpu_ms": self._cpu_ms,
            "peak_memory_bytes": usage["peak_memory_bytes"],
            "trouble": {
                "refusal": None,
                "processes": 0,
                "exhausted": exhausted if isinstance(exhausted, str) else "",
                "disk_full": False,
                "out_of_memory_kills": 0,
                "refused_processes": None,
            },
        }
