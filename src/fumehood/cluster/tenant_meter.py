"""Counts what one tenant uses on one worker, within limits that servers have sent, and keeps it for the next report."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping

from fumehood.errors import DeniedError
from fumehood.results import RunResult

RUNS, CPU, MEMORY, EGRESS = "runs", "cpu_seconds", "memory_byte_seconds", "egress_bytes"
"""What is reported, by the names of servers' tables."""
_FENCED = "the lease of the worker is over"
LIMITS = ("runs", "cpu_seconds_left", "egress_bytes_left")


class WorkerMeter:
    """A worker counts for itself: several together can go beyond a limit, each by no more than it was told is left.

    Both a `RunMeter` and an `EgressMeter`; the gateway calls from a thread of its own. `is_fenced` says that the
    worker's lease is over. A process that was stopped goes on in the middle of what it did, and nothing of that may
    begin or leave before its sandboxes are closed.
    """

    def __init__(self, is_fenced: Callable[[], bool]) -> None:
        self._is_fenced = is_fenced
        self._lock = threading.Lock()
        self._left = dict.fromkeys(LIMITS, 0.0)
        self._running = 0
        self._used = Counter[str]()

    def set_limits(self, limits: Mapping[str, float]) -> None:
        """At every opening, as the server has them then."""
        with self._lock:
            self._left = dict(limits)

    def begin(self) -> None:
        if self._is_fenced():
            raise DeniedError(_FENCED)
        if self._running >= self._left["runs"]:
            most = self._left["runs"]
            raise DeniedError(f"the quota for runs at once is used up: {self._running} of {most:g} on this host")
        if self._left["cpu_seconds_left"] <= 0:
            raise DeniedError("the quota for processor time of this day is used up")
        self._running += 1

    def end(self, run_id: str, result: RunResult | None, seconds: float) -> None:
        """A run that was left before its end is charged with all its time, as on a server."""
        self._running -= 1
        cpu = seconds if result is None else result.cpu_ms / 1000
        memory = 0.0 if result is None else result.peak_memory_bytes * seconds
        with self._lock:
            self._left["cpu_seconds_left"] -= cpu
            self._add({RUNS: 1, CPU: cpu, MEMORY: memory})

    def left_bytes(self) -> int:
        return -1 if self._is_fenced() else int(self._left["egress_bytes_left"])

    def count(self, moved: int) -> None:
        with self._lock:
            self._left["egress_bytes_left"] -= moved
            self._add({EGRESS: moved})

    def refusal(self) -> str:
        return _FENCED if self._is_fenced() else "the quota for bytes of this day is used up"

    def _add(self, amounts: Mapping[str, float]) -> None:
        self._used.update(amounts)  # pyright: ignore[reportArgumentType]  # a Counter adds floats as well

    def take_used(self) -> dict[str, float]:
        """What was used since the last time."""
        with self._lock:
            used, self._used = self._used, Counter[str]()
        return dict(used)
