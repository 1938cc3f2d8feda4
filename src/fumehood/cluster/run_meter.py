"""Counts the runs of one tenant on one worker, within limits that servers have sent, and keeps what they have used."""

from __future__ import annotations

from collections.abc import Mapping

from fumehood.errors import DeniedError
from fumehood.results import RunResult


class WorkerMeter:
    """A worker counts its own runs alone: workers together can go beyond a limit, each by no more than the limit."""

    def __init__(self) -> None:
        self._most_runs = self._cpu_left = 0.0
        self._running = 0
        self._used: dict[str, float] = {"runs": 0, "cpu_seconds": 0.0}

    def set_limits(self, limits: Mapping[str, float]) -> None:
        """At every opening, as the server has them then."""
        self._most_runs, self._cpu_left = limits["runs"], limits["cpu_seconds_left"]

    def begin(self) -> None:
        if self._running >= self._most_runs:
            raise DeniedError(
                f"the quota for runs at once is used up: {self._running} of {self._most_runs:g} on this host"
            )
        if self._cpu_left <= 0:
            raise DeniedError("the quota for processor time of this day is used up")
        self._running += 1

    def end(self, result: RunResult | None, seconds: float) -> None:
        self._running -= 1
        used = seconds if result is None else result.cpu_ms / 1000
        self._cpu_left -= used
        self._used = {"runs": self._used["runs"] + 1, "cpu_seconds": self._used["cpu_seconds"] + used}

    def take_used(self) -> dict[str, float] | None:
        """What was used since the last time; None for nothing."""
        used, self._used = self._used, {"runs": 0, "cpu_seconds": 0.0}
        return used if used["runs"] else None
