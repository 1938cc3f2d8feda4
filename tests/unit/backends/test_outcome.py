"""The verdict on a run is a pure function of what the guest and the host saw."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.backends.outcome import HostView, decide_outcome
from fumehood.policy import Resources
from fumehood.results import Cause, Outcome, Status

RESOURCES = Resources(memory=128 * 1024 * 1024, processes=20, disk=8 * 1024 * 1024, output=1024)
CALM = HostView(duration_ms=12.5, output_exceeded=False, cancelled=False)
FATAL = [number for number in range(1, 65) if number not in (32, 33)]


def answer(status: int | None = 0, *, ended_by: str = "exit", cpu_ms: float = 3.0, **trouble: Any) -> dict[str, Any]:
    """What the guest says of an uneventful run, with changes; of a success it does not look for trouble."""
    none = {
        "refusal": None,
        "processes": 1,
        "exhausted": "",
        "disk_full": False,
        "out_of_memory_kills": 0,
        "refused_processes": 0,
    }
    return {
        "status": status,
        "ended_by": ended_by,
        "cpu_ms": cpu_ms,
        "peak_memory_bytes": 5000,
        "trouble": None if status == 0 else {**none, **trouble},
    }


def judged(said: dict[str, Any] | None, view: HostView = CALM, resources: Resources = RESOURCES) -> Outcome:
    return decide_outcome(said, view, resources, timeout_seconds=1.5)


def test_a_timeout_names_who_set_it() -> None:
    late = answer(None, ended_by="wall_time")
    assert judged(late, resources=Resources(timeout="1.5s")).detail == (
        "it ran longer than 1.5s; raise resources.timeout"
    )
    assert judged(late, resources=Resources(timeout="30s")).detail == (
        "it ran longer than 1.5s; give it a longer one, up to 30s"
    )


def exited(code: int) -> int:
    return code << 8


ENDINGS = {
    "success": (answer(0), CALM, (Status.SUCCESS, Cause.EXIT, 0, None), ""),
    "exit 3": (answer(exited(3)), CALM, (Status.ERROR, Cause.EXIT, 3, None), ""),
    "a signal": (answer(11), CALM, (Status.ERROR, Cause.SIGNAL, 139, "SIGSEGV"), "SIGSEGV"),
    "a core dump": (answer(11 | 128), CALM, (Status.ERROR, Cause.SIGNAL, 139, "SIGSEGV"), "SIGSEGV"),
    "the wall clock": (
        answer(None, ended_by="wall_time"),
        CALM,
        (Status.TIMEOUT, Cause.WALL_TIME, 124, None),
        "1.5s",
    ),
    "the wall clock, whatever else happened": (
        answer(None, ended_by="wall_time", disk_full=True, exhausted="memory"),
        CALM,
        (Status.TIMEOUT, Cause.WALL_TIME, 124, None),
        "it ran longer than 1.5s",
    ),
    "nobody answered": (None, CALM, (Status.ERROR, Cause.LOST, 125, None), "vanished"),
    "the caller": (
        answer(None, ended_by="kill"),
        HostView(1.0, False, True),
        (Status.CANCELLED, Cause.CANCELLED, 130, None),
        "caller",
    ),
    "the caller, though the program had ended": (
        answer(0),
        HostView(1.0, False, True),
        (Status.CANCELLED, Cause.CANCELLED, 130, None),
        "caller",
    ),
    "the caller, and nobody answered": (
        None,
        HostView(1.0, False, True),
        (Status.CANCELLED, Cause.CANCELLED, 130, None),
        "caller",
    ),
    "somebody else's kill": (
        answer(None, ended_by="kill"),
        CALM,
        (Status.CANCELLED, Cause.CANCELLED, 130, None),
        "outside",
    ),
    "output": (
        answer(None, ended_by="kill"),
        HostView(1.0, True, False),
        (Status.RESOURCE_EXCEEDED, Cause.OUTPUT, 137, None),
        "1K of output",
    ),
    "output, and success": (
        answer(0),
        HostView(1.0, True, False),
        (Status.RESOURCE_EXCEEDED, Cause.OUTPUT, 137, None),
        "1K",
    ),
    "memory": (
        answer(9, out_of_memory_kills=1),
        CALM,
        (Status.RESOURCE_EXCEEDED, Cause.MEMORY, 137, "SIGKILL"),
        "128M of memory",
    ),
    "memory, said by the program": (
        answer(exited(1), exhausted="memory"),
        CALM,
        (Status.RESOURCE_EXCEEDED, Cause.MEMORY, 137, None),
        "resources.memory",
    ),
    "processes": (
        answer(exited(1), refused_processes=3),
        CALM,
        (Status.RESOURCE_EXCEEDED, Cause.PROCESSES, 1, None),
        "20 processes",
    ),
    "processes, said by the program": (
        answer(exited(1), exhausted="processes"),
        CALM,
        (Status.RESOURCE_EXCEEDED, Cause.PROCESSES, 1, None),
        "20 processes",
    ),
    "disk": (answer(exited(1), disk_full=True), CALM, (Status.RESOURCE_EXCEEDED, Cause.DISK, 1, None), "8M"),
    "disk, said by the program": (
        answer(exited(2), exhausted="disk"),
        CALM,
        (Status.RESOURCE_EXCEEDED, Cause.DISK, 2, None),
        "resources.disk",
    ),
    "a file beyond its limit": (
        answer(int(signal.SIGXFSZ)),
        CALM,
        (Status.RESOURCE_EXCEEDED, Cause.DISK, 153, "SIGXFSZ"),
        "disk",
    ),
    "SIGXCPU without a limit": (
        answer(int(signal.SIGXCPU)),
        CALM,
        (Status.ERROR, Cause.SIGNAL, 152, "SIGXCPU"),
        "SIGXCPU",
    ),
    "SIGKILL alone": (answer(9), CALM, (Status.ERROR, Cause.SIGNAL, 137, "SIGKILL"), "SIGKILL"),
}


@pytest.mark.parametrize(("said", "view", "expected", "detail"), ENDINGS.values(), ids=ENDINGS.keys())
def test_every_ending_has_its_verdict(
    said: dict[str, Any] | None, view: HostView, expected: tuple[Status, Cause, int, str | None], detail: str
) -> None:
    outcome = judged(said, view)
    assert (outcome.status, outcome.cause, outcome.exit_code, outcome.signal) == expected
    assert detail in outcome.detail
    assert bool(outcome.detail) == bool(detail)


@pytest.mark.parametrize(
    ("status", "cpu_ms", "cause"),
    [
        (int(signal.SIGXCPU), 1000.0, Cause.CPU_TIME),
        (9, 2000.0, Cause.CPU_TIME),
        (9, 999.0, Cause.SIGNAL),
        (exited(1), 5000.0, Cause.EXIT),
        (0, 5000.0, Cause.EXIT),
    ],
)
def test_cpu_time_ends_a_run_only_by_its_signals(status: int, cpu_ms: float, cause: Cause) -> None:
    outcome = judged(answer(status, cpu_ms=cpu_ms), resources=Resources(cpu_time=1.0))
    assert outcome.cause is cause
    assert (outcome.status is Status.TIMEOUT) == (cause is Cause.CPU_TIME)
    assert ("1s of CPU time" in outcome.detail) == (cause is Cause.CPU_TIME)


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_a_failure_with_one_process_is_not_about_processes(processes: int) -> None:
    """The count includes the program itself, so a count of one is a program that is alone."""
    outcome = judged(answer(exited(3), processes=1), resources=Resources(processes=processes))
    assert outcome.cause is Cause.EXIT


def test_a_runtime_that_may_not_reserve_more_is_told_of_the_limit_where_that_is_not_counted() -> None:
    told = judged(answer(int(signal.SIGTRAP), refused_processes=None)).detail
    assert told.startswith("the program was ended by SIGTRAP; Node, Go and Java end like that")
    assert told.endswith("more than 128M: raise resources.memory")
    assert judged(answer(int(signal.SIGTRAP))).detail == "the program was ended by SIGTRAP"
    assert judged(answer(int(signal.SIGTERM), refused_processes=None)).detail == "the program was ended by SIGTERM"


@pytest.mark.parametrize("number", [1, 9, 15, 31, 34, 35, 50, 64])
def test_every_signal_has_a_name(number: int) -> None:
    outcome = judged(answer(number), resources=Resources())
    assert outcome.exit_code == 128 + number
    assert outcome.signal


def test_what_was_measured_is_passed_on() -> None:
    outcome = judged(answer(0))
    assert (outcome.duration_ms, outcome.cpu_ms, outcome.peak_memory_bytes) == (12.5, 3.0, 5000)
    assert judged(None).peak_memory_bytes == 0


answers = st.one_of(
    st.none(),
    st.builds(
        answer,
        st.one_of(st.none(), st.integers(0, 255).map(exited), st.sampled_from(FATAL)),
        ended_by=st.sampled_from(["exit", "wall_time", "kill"]),
        out_of_memory_kills=st.integers(0, 3),
        refused_processes=st.integers(0, 3),
        processes=st.integers(1, 100),
        exhausted=st.sampled_from(["", "memory", "disk", "processes"]),
        disk_full=st.booleans(),
        cpu_ms=st.floats(0, 1e6),
    ),
)
views = st.builds(HostView, st.floats(0, 1e6), st.booleans(), st.booleans())


@given(answers, views)
def test_a_verdict_never_contradicts_itself(said: dict[str, Any] | None, view: HostView) -> None:
    outcome = judged(said, view)
    assert (outcome.status is Status.SUCCESS) == (outcome.exit_code == 0)
    assert outcome.truncated == view.output_exceeded
    assert (outcome.status is Status.CANCELLED) == (outcome.cause is Cause.CANCELLED)
    assert (outcome.status is Status.TIMEOUT) == (outcome.cause in (Cause.WALL_TIME, Cause.CPU_TIME))
    exceeded = outcome.cause in (Cause.MEMORY, Cause.PROCESSES, Cause.DISK, Cause.OUTPUT)
    assert (outcome.status is Status.RESOURCE_EXCEEDED) == exceeded
    assert 0 <= outcome.exit_code <= 255
    assert outcome.detail or outcome.cause is Cause.EXIT


@given(answers)
def test_a_caller_who_cancels_always_sees_that(said: dict[str, Any] | None) -> None:
    assert judged(said, HostView(1.0, False, True)).status is Status.CANCELLED
