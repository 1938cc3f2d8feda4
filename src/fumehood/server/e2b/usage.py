"""What a sandbox uses, as the kernel has counted it: of runs that have ended, and of its disk now."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from fumehood.results import RunResult
from fumehood.server.sandboxes.placement import PlacedSandbox


class SandboxUsage:
    def __init__(self, box: PlacedSandbox) -> None:
        self._box, self._cpu_ms, self._since = box, 0.0, time.monotonic()
        self._memory_bytes = 0

    def add(self, result: RunResult | None) -> None:
        """The numbers of the run's cgroup."""
        if result is not None:
            self._cpu_ms += result.cpu_ms
            self._memory_bytes = max(self._memory_bytes, result.peak_memory_bytes)

    async def metric(self) -> dict[str, Any]:
        """CPU as an average over the time since the last question, memory as the most that one of its runs had."""
        now, resources = time.time(), self._box.policy.resources
        disk_used, disk_total = await self._box.files.streams.room()
        return {
            "timestamp": timestamp(now),
            "timestampUnix": int(now),
            "cpuCount": max(1, round(resources.cpus)),
            "cpuUsedPct": round(self._take_share(), 2),
            "memUsed": self._memory_bytes,
            "memTotal": resources.memory,
            "memCache": 0,
            "diskUsed": disk_used,
            "diskTotal": disk_total,
        }

    def _take_share(self) -> float:
        now = time.monotonic()
        seconds, self._since = max(now - self._since, 0.001), now
        spent_ms, self._cpu_ms = self._cpu_ms, 0.0
        return spent_ms / 10 / seconds


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
