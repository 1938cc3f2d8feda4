"""What the kernel has counted: a process's use of it, and how often the container's limits had to be enforced."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import NamedTuple

from ..program.peak_memory import peak_memory_bytes

_CPU_CLOCK_OF_PROCESS = 2
# Version 2 first. An engine shows a container its own cgroups there, and nothing else.
_MEMORY = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_PROCESSES = ("/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events")


class LimitFailures(NamedTuple):
    """None where nothing counts them."""

    memory: int | None
    processes: int | None


def failures(group: str | None = None) -> LimitFailures:
    """Of a group, if its kernel counts them there, else of the container."""
    memory = (f"{group}/memory.oom_control", *_MEMORY) if group else _MEMORY
    processes = (f"{group}/pids.events", *_PROCESSES) if group else _PROCESSES
    return LimitFailures(_counter(memory, "oom_kill"), _counter(processes, "max"))


def _counter(paths: tuple[str, ...], key: str) -> int | None:
    for path in paths:
        with suppress(OSError, ValueError), open(path, encoding="ascii") as stream:
            counters = dict(line.split() for line in stream)
            if key in counters:
                return int(counters[key])
    return None


def of_process(process: int) -> dict[str, float]:
    return {"cpu_ms": _cpu_seconds(process) * 1000, "peak_memory_bytes": peak_memory_bytes(process)}


def _cpu_seconds(process: int) -> float:
    try:
        return time.clock_gettime(~process << 3 | _CPU_CLOCK_OF_PROCESS)
    except OSError:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
