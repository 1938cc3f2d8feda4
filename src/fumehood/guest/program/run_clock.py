"""The time limit of a run, and the commands of the host about it: signals, interrupts, more time, usage.

Used by the supervisors of both guests, the cell's and the relay's; must not know how either starts or ends processes.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from ..contract import wire
from ..contract.limits import INTERRUPT_GRACE_SECONDS

# An interrupt that arrives just before a system call that blocks is not noticed: it is repeated until the run is over.
_INTERRUPT_AGAIN_SECONDS = 1.0
# At the time limit the first time is sooner, within the grace.
_LATE_INTERRUPT_AGAIN_SECONDS = 0.1
# What a terminal sends to all that a command started: a shell that waits for a program does not end by itself.
_OF_A_TERMINAL = (signal.SIGINT, signal.SIGQUIT)


def send_to_group(leader: int, number: int) -> None:
    """Sends a signal to the process group of a program, which is a child of ours and not buried yet."""
    try:
        os.killpg(leader, number)
    except ProcessLookupError:  # it has not made its group yet, or has just ended
        with suppress(ProcessLookupError):
            os.kill(leader, number)


class RunClock:
    """The clock of one run. `send_signal` reaches its program alone, `send_to_group` with what it has started."""

    def __init__(
        self, send_signal: Callable[[int], None], send_to_group: Callable[[int], None], send_usage: Callable[[], None]
    ) -> None:
        self._send_signal, self._send_to_group, self._send_usage = send_signal, send_to_group, send_usage
        self._deadline: float | None = None
        self._interrupt_at: float | None = None
        self._is_interruptible = self._is_warned = False

    def start(self, seconds: float | None, *, is_interruptible: bool) -> None:
        self._is_interruptible = is_interruptible
        self._allow(seconds)

    def _allow(self, seconds: float | None) -> None:
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._is_warned, self._interrupt_at = False, None

    @property
    def wakes_at(self) -> float | None:
        """When `check` has something to do."""
        times = [moment for moment in (self._deadline, self._interrupt_at) if moment is not None]
        return min(times, default=None)

    def handle_command(self, message: wire.Message) -> bool:
        """False when the run is to end."""
        match message["do"]:
            case "signal":
                number = message["number"]
                (self._send_to_group if number in _OF_A_TERMINAL else self._send_signal)(number)
            case "interrupt":
                self._interrupt(_INTERRUPT_AGAIN_SECONDS)
            case "allow":
                self._allow(message["seconds"])
            case "rest":
                self._allow(None)
                self._send_usage()
            case _:
                return False
        return True

    def check(self, now: float) -> bool:
        """False when the run's time is over. A session is interrupted first: it may keep its state."""
        if self._interrupt_at is not None and self._interrupt_at <= now:
            self._interrupt(_INTERRUPT_AGAIN_SECONDS)
        if self._deadline is None or self._deadline > now:
            return True
        if not self._is_interruptible or self._is_warned:
            return False
        self._deadline, self._is_warned = now + INTERRUPT_GRACE_SECONDS, True
        self._interrupt(_LATE_INTERRUPT_AGAIN_SECONDS)
        return True

    def _interrupt(self, again_seconds: float) -> None:
        self._interrupt_at = time.monotonic() + again_seconds
        self._send_signal(signal.SIGINT)
