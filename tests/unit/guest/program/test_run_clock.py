"""The time limit of a run and the host's commands, without processes: what the supervisors of both guests rely on."""

from __future__ import annotations

import signal
import time

import pytest

from fumehood.guest.contract.limits import INTERRUPT_GRACE_SECONDS
from fumehood.guest.program.run_clock import RunClock


class Program:
    """What a clock did to it."""

    def __init__(self) -> None:
        self.signals: list[int] = []
        self.signals_of_group: list[int] = []
        self.usages = 0
        self.clock = RunClock(self.signals.append, self.signals_of_group.append, self._send_usage)

    def _send_usage(self) -> None:
        self.usages += 1


@pytest.fixture
def program() -> Program:
    return Program()


def test_what_a_terminal_sends_reaches_all_that_the_program_has_started(program: Program) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1):
        assert program.clock.handle_command({"do": "signal", "number": number})
    assert program.signals_of_group == [signal.SIGINT, signal.SIGQUIT]
    assert program.signals == [signal.SIGTERM, signal.SIGUSR1]


def test_an_interrupt_of_a_session_reaches_its_interpreter_alone(program: Program) -> None:
    program.clock.start(None, is_interruptible=True)
    program.clock.handle_command({"do": "interrupt"})
    assert (program.signals, program.signals_of_group) == ([signal.SIGINT], [])


def test_a_run_without_a_limit_is_never_late(program: Program) -> None:
    program.clock.start(None, is_interruptible=False)
    assert program.clock.wakes_at is None
    assert program.clock.check(time.monotonic() + 10**6)


def test_a_run_is_over_at_its_limit(program: Program) -> None:
    program.clock.start(5, is_interruptible=False)
    ends_at = program.clock.wakes_at
    assert ends_at is not None
    assert program.clock.check(ends_at - 0.1)
    assert not program.clock.check(ends_at)
    assert program.signals == []


def test_a_session_is_interrupted_at_its_limit_and_over_soon_after(program: Program) -> None:
    program.clock.start(5, is_interruptible=True)
    limit = program.clock.wakes_at
    assert limit is not None
    assert program.clock.check(limit)
    assert program.signals == [signal.SIGINT]
    assert program.clock.check(limit + INTERRUPT_GRACE_SECONDS - 0.1)
    assert not program.clock.check(limit + INTERRUPT_GRACE_SECONDS)


def test_a_session_that_obeys_is_kept_although_a_busy_host_takes_its_time_to_say_so(program: Program) -> None:
    program.clock.start(None, is_interruptible=True)
    program.clock.handle_command({"do": "allow", "seconds": 0})
    over_since = program.clock.wakes_at
    assert over_since is not None
    assert program.clock.check(over_since)
    assert program.clock.check(over_since + 0.5)
    assert program.clock.handle_command({"do": "rest"})
    assert program.clock.check(over_since + 100)


def test_more_time_takes_the_warning_back(program: Program) -> None:
    program.clock.start(5, is_interruptible=True)
    limit = program.clock.wakes_at
    assert limit is not None
    program.clock.check(limit)
    assert program.clock.handle_command({"do": "allow", "seconds": 100})
    assert program.clock.check(limit + 50)
    assert program.signals == [signal.SIGINT]


def test_an_interrupt_is_repeated_until_the_run_is_over(program: Program) -> None:
    program.clock.start(None, is_interruptible=True)
    program.clock.handle_command({"do": "interrupt"})
    again = program.clock.wakes_at
    assert again is not None
    program.clock.check(again)
    assert program.signals == [signal.SIGINT] * 2


def test_resting_stops_the_clock_and_sends_the_usage(program: Program) -> None:
    program.clock.start(5, is_interruptible=True)
    assert program.clock.handle_command({"do": "rest"})
    assert (program.usages, program.clock.wakes_at) == (1, None)


def test_signals_are_passed_on(program: Program) -> None:
    assert program.clock.handle_command({"do": "signal", "number": 15})
    assert program.signals == [15]


@pytest.mark.parametrize("command", ["end", "unheard of"])
def test_any_other_command_ends_the_run(program: Program, command: str) -> None:
    assert not program.clock.handle_command({"do": command})
