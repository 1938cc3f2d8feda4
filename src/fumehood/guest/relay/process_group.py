"""How a supervisor holds its run where orphans cannot be made its own: in a group that every process is born into.

For a kernel of the sandbox's own: gVisor's, or a machine's. There the guest may be root without any rights on the host,
so it can use that kernel's own count of processes, which is as good a list of them; programs are an ordinary user's,
who cannot leave a group and cannot touch what is the guest's. A machine's kernel counts their memory there as well.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress

from ..contract.paths import GUEST_FOLDER
from ..isolation import kernel
from ..isolation.steps import StepError, step
from . import usage

_GROUPS = f"{GUEST_FOLDER}/pids"
_RUNS = f"{_GROUPS}/runs"
"""All runs together; what one of them has left counts there."""
GVISOR, MACHINE = "gvisor", "machine"
_CONTROLLERS = {GVISOR: "pids,cpuacct", MACHINE: "pids,memory,cpuacct"}
_PAUSE_SECONDS = 0.001


# What gVisor says of itself to programs that ask which kernel they run on.
_GVISOR_BUILD = "#1 SMP Sun Jan 10 15:06:54 PST 2016"
_GVISOR_GREETING = b"Starting gVisor..."
_READ_KERNEL_LOG = 3
_KERNEL_LOG_BYTES = 64 * 1024


def require_gvisor() -> None:
    """Before the first program: a runtime may be called like gVisor's and be another."""
    log = ctypes.create_string_buffer(_KERNEL_LOG_BYTES)
    count = kernel.libc.klogctl(_READ_KERNEL_LOG, log, _KERNEL_LOG_BYTES)
    if _GVISOR_GREETING not in log.raw[: max(0, count)] and os.uname().version != _GVISOR_BUILD:
        raise StepError("making sure of gVisor", f"the container's kernel is {os.uname().release}, which is not gVisor")


def prepare(kind: str) -> None:
    """Once, before the first run."""
    with step("counting processes"):
        os.makedirs(_GROUPS, exist_ok=True)
        kernel.mount("pids", _GROUPS, "cgroup", 0, _CONTROLLERS[kind])
        os.mkdir(_RUNS)


def limit_memory(size_bytes: int) -> None:
    """Of all runs together, with what they have written to files in memory."""
    _write(f"{_RUNS}/memory.limit_in_bytes", str(size_bytes))


class ProcessGroup:
    def __init__(self, processes: int) -> None:
        self._folder = f"{_RUNS}/{os.getpid()}"
        self._failures: usage.LimitFailures | None = None
        self._cpu_seconds: float | None = None
        self._peak_memory_bytes: int | None = None
        with step("making the run's group of processes"):
            os.mkdir(self._folder)
            self._limit(processes)
            self._limit_memory()

    def enter(self) -> None:
        """In the program's process; whatever it starts is born there."""
        with step("entering the run's group of processes"):
            _write(f"{self._folder}/cgroup.procs", "0")

    def count_others(self, program: int) -> int:
        return len(self._members())

    def failures(self) -> usage.LimitFailures:
        """What the group itself has counted, where its kernel does."""
        return self._failures or usage.failures(self._folder)

    def cpu_seconds(self) -> float:
        """What the group itself has counted, of all that were ever born into it: a parent need not have waited.

        gVisor counts there in hundredths, and less than of what our own children have used.
        """
        if self._cpu_seconds is not None:
            return self._cpu_seconds
        with open(f"{self._folder}/cpuacct.usage", encoding="ascii") as stream:
            return max(int(stream.read()) / 1e9, usage.cpu_seconds_of_children())

    def peak_memory_bytes(self) -> int:
        """What the group itself has counted, without what a program shares with the guest; 0 where nothing does."""
        if self._peak_memory_bytes is not None:
            return self._peak_memory_bytes
        try:
            with open(f"{self._folder}/memory.max_usage_in_bytes", encoding="ascii") as stream:
                return int(stream.read())
        except FileNotFoundError:
            return 0

    def kill(self) -> None:
        """Returns when no process is left. No more of them can start while those that are there are killed."""
        self._limit(0)
        while members := self._members():
            for process in members:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            _reap()
            # There is no event for the end of another process's child; it is a matter of microseconds.
            time.sleep(_PAUSE_SECONDS)
        _reap()
        self._failures, self._cpu_seconds = usage.failures(self._folder), self.cpu_seconds()
        self._peak_memory_bytes = self.peak_memory_bytes()
        with suppress(OSError):
            os.rmdir(self._folder)

    def _limit(self, processes: int) -> None:
        _write(f"{self._folder}/pids.max", str(processes))

    def _limit_memory(self) -> None:
        """What all runs may have together, here as well: one that takes it all is ended, and none of the others."""
        with suppress(FileNotFoundError), open(f"{_RUNS}/memory.limit_in_bytes", encoding="ascii") as stream:
            _write(f"{self._folder}/memory.limit_in_bytes", stream.read().strip())

    def _members(self) -> list[int]:
        with open(f"{self._folder}/cgroup.procs", encoding="ascii") as stream:
            return [int(line) for line in stream]


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
