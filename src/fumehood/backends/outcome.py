"""The outcome of a run: status, cause and a sentence, from what guest and host saw. Pure; the same everywhere."""

from __future__ import annotations

import os
import signal
from typing import Any

from fumehood.frozen import frozen
from fumehood.policy import Resources, format_duration, format_size
from fumehood.results import Cause, Outcome, Status

TIMEOUT_EXIT_CODE = 124
LOST_EXIT_CODE = 125
CANCELLED_EXIT_CODE = 130
KILLED_EXIT_CODE = 137

_LEAST_MEANINGFUL_LIMIT = 8
_SIGNALS_OF_RUNTIMES = ("SIGTRAP", "SIGABRT", "SIGSEGV")

Answer = dict[str, Any]


@frozen
class HostView:
    """What only the host knows of a run."""

    duration_ms: float
    output_exceeded: bool
    cancelled: bool
    lost: bool = False
    """The guest did not answer after the run's time and was ended."""


@frozen
class _Ending:
    status: Status
    cause: Cause
    exit_code: int
    detail: str = ""
    signal: str | None = None


def decide_outcome(answer: Answer | None, view: HostView, resources: Resources, timeout_seconds: float) -> Outcome:
    """`answer` is None if the guest ended without one."""
    ending = _ending(answer, view, resources, timeout_seconds)
    answer = answer or {"cpu_ms": 0.0, "peak_memory_bytes": 0}
    return Outcome(
        status=ending.status,
        cause=ending.cause,
        exit_code=ending.exit_code,
        signal=ending.signal,
        detail=ending.detail,
        truncated=view.output_exceeded,
        duration_ms=view.duration_ms,
        cpu_ms=answer["cpu_ms"],
        peak_memory_bytes=answer["peak_memory_bytes"],
    )


def _ending(answer: Answer | None, view: HostView, resources: Resources, timeout_seconds: float) -> _Ending:
    if view.cancelled:
        return _Ending(Status.CANCELLED, Cause.CANCELLED, CANCELLED_EXIT_CODE, "the caller stopped the run")
    if view.output_exceeded:
        limit = format_size(resources.output)
        return _exceeded(
            Cause.OUTPUT, f"it wrote more than {limit} of output; raise resources.output or write to a file"
        )
    if view.lost:
        seconds = format_duration(timeout_seconds)
        detail = f"the sandbox did not answer after the run's {seconds} were over, and was ended; open a new one"
        return _Ending(Status.ERROR, Cause.LOST, LOST_EXIT_CODE, detail)
    if answer is None:
        detail = "the sandbox vanished while the program ran; it may have been killed from outside"
        return _Ending(Status.ERROR, Cause.LOST, LOST_EXIT_CODE, detail)
    if answer["ended_by"] == "wall_time":
        most = resources.timeout
        is_own = timeout_seconds < most
        remedy = f"give it a longer one, up to {format_duration(most)}" if is_own else "raise resources.timeout"
        detail = f"it ran longer than {format_duration(timeout_seconds)}; {remedy}"
        return _Ending(Status.TIMEOUT, Cause.WALL_TIME, TIMEOUT_EXIT_CODE, detail)
    if answer["status"] is None:
        return _Ending(Status.CANCELLED, Cause.CANCELLED, CANCELLED_EXIT_CODE, "the run was stopped from outside")
    return _own_ending(os.waitstatus_to_exitcode(answer["status"]), answer, resources)


def _own_ending(code: int, answer: Answer, resources: Resources) -> _Ending:
    if code == 0:
        return _Ending(Status.SUCCESS, Cause.EXIT, 0)
    name = _signal_name(-code) if code < 0 else None
    shown = 128 - code if code < 0 else code
    exhausted = _exhausted(name, answer, resources)
    if exhausted:
        return _Ending(exhausted.status, exhausted.cause, exhausted.exit_code or shown, exhausted.detail, name)
    if name:
        detail = f"the program was ended by {name}{_suspicion(name, answer, resources)}"
        return _Ending(Status.ERROR, Cause.SIGNAL, shown, detail, name)
    return _Ending(Status.ERROR, Cause.EXIT, shown)


def _suspicion(name: str, answer: Answer, resources: Resources) -> str:
    """Without cgroups memory is the address space of each process, and the kernel does not count refusals."""
    if name not in _SIGNALS_OF_RUNTIMES or answer["trouble"]["refused_processes"] is not None:
        return ""
    limit = format_size(resources.memory)
    return f"; Node, Go and Java end like that when they may not reserve more than {limit}: raise resources.memory"


def _signal_name(number: int) -> str:
    """Real-time signals have numbers only."""
    known = {member.value: member.name for member in signal.Signals}
    return known.get(number, f"SIGRTMIN+{number - signal.SIGRTMIN}")


def _exhausted(name: str | None, answer: Answer, resources: Resources) -> _Ending | None:
    """Which limit the program ran into, if it failed because of one."""
    trouble = answer["trouble"]
    said = trouble["exhausted"]
    if trouble["out_of_memory_kills"] or said == "memory":
        limit = format_size(resources.memory)
        return _exceeded(Cause.MEMORY, f"it needed more than {limit} of memory; raise resources.memory")
    if _out_of_cpu_time(name, answer, resources):
        limit = format_duration(resources.cpu_time or 0)
        detail = f"it used more than {limit} of CPU time; raise resources.cpu_time"
        return _Ending(Status.TIMEOUT, Cause.CPU_TIME, TIMEOUT_EXIT_CODE, detail)
    if said == "processes" or _crowded(trouble, resources.processes):
        limit = resources.processes
        return _exceeded(Cause.PROCESSES, f"it wanted more than {limit} processes; raise resources.processes", 0)
    if trouble["disk_full"] or name == "SIGXFSZ" or said == "disk":
        detail = f"it filled its disk ({format_size(resources.disk)}, {resources.inodes} files); raise resources.disk"
        return _exceeded(Cause.DISK, detail, 0)
    return None


def _crowded(trouble: Answer, limit: int) -> bool:
    """The kernel counts refusals only in a cgroup; without one, a failed program among the most it may have was
    most likely refused one more. With very few allowed that would be a guess.
    """
    if trouble["refused_processes"] is not None:
        return trouble["refused_processes"] > 0
    return limit >= _LEAST_MEANINGFUL_LIMIT and trouble["processes"] >= limit


def _exceeded(cause: Cause, detail: str, exit_code: int = KILLED_EXIT_CODE) -> _Ending:
    return _Ending(Status.RESOURCE_EXCEEDED, cause, exit_code, detail)


def _out_of_cpu_time(name: str | None, answer: Answer, resources: Resources) -> bool:
    if resources.cpu_time is None:
        return False
    return name == "SIGXCPU" or (name == "SIGKILL" and answer["cpu_ms"] >= resources.cpu_time * 1000)
