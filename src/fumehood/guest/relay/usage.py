"""What the kernel has counted: a process's use of it, and how often the container's limits had to be enforced."""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress
from typing import NamedTuple

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


def cpu_seconds_of_children() -> float:
    """Of this process, as far as they have ended, with all that they had waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cpu_seconds_with_children(process: int) -> float:
    """Of a process, and of its children that have ended and that it has waited for. 0 if it has just gone."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    own, waited_for = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
    ticks = os.sysconf("SC_CLK_TCK")
    try:
        # Exact, where the one above counts in hundredths.
        return time.clock_gettime(~process << 3 | _CPU_CLOCK_OF_PROCESS) + waited_for / ticks
    except OSError:
        return (own + waited_for) / ticks
