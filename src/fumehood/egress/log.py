"""The log of one run's egress, and the errors that end a connection.

Each attempt is in the log once, with a count; the number of different attempts is bounded.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Generic, TypeVar

from fumehood.frozen import frozen
from fumehood.policy.decision import Decision
from fumehood.policy.egress import AllowedAttempt, Attempt, to_allowed, to_denial
from fumehood.results import Denial
from fumehood.secret_scan.canaries import CanaryAlert

# The message does not reveal to a program that there are canaries.
MUST_NOT_LEAVE = "it holds what must not leave"


class EgressDeniedError(Exception):
    """The policy does not allow it."""

    def __init__(self, decision: Decision[Attempt]) -> None:
        super().__init__(decision.reason)
        self.decision = decision


class UnreachableError(Exception):
    """The policy would allow it, but the server cannot be found, reached or believed; the text says which."""


@frozen
class EgressFailure:
    """Why a server that is allowed could not be used, as `UnreachableError` says it."""

    reason: str
    count: int


T = TypeVar("T")
_MOST_FAILURES = 16


class BoundedCounter(Generic[T]):
    """A counter of items, in the order of their first time; items beyond the limit are counted without being kept."""

    def __init__(self, most: int) -> None:
        self.most, self.further = most, 0
        self._counts: dict[T, int] = {}

    def add(self, thing: T) -> None:
        if thing in self._counts or len(self._counts) < self.most:
            self._counts[thing] = self._counts.get(thing, 0) + 1
        else:
            self.further += 1

    def counted(self) -> list[tuple[T, int]]:
        return list(self._counts.items())


class EgressLog:
    """Thread-safe. The last of its denials, or allowed, may stand for all that were too many to tell apart."""

    def __init__(self, *, denials: int, allowed: int) -> None:
        self._denials = BoundedCounter[Denial](denials)
        self._passages = BoundedCounter[AllowedAttempt](allowed)
        self._failures = BoundedCounter[str](_MOST_FAILURES)
        self._alarms: dict[CanaryAlert, None] = {}
        self._lock = threading.Lock()

    def record(self, decision: Decision[Attempt]) -> None:
        with self._lock:
            if decision.allowed:
                self._passages.add(to_allowed(decision))
            else:
                self._denials.add(to_denial(decision))

    def fail(self, reason: str) -> None:
        """Something that is allowed did not work, for a reason that is outside."""
        with self._lock:
            self._failures.add(reason)

    def alert(self, alert: CanaryAlert) -> None:
        with self._lock:
            self._alarms[alert] = None

    def denials(self) -> tuple[Denial, ...]:
        with self._lock:
            found = [replace(denial, count=count) for denial, count in self._denials.counted()]
            most, further = self._denials.most, self._denials.further
        if further:
            why = f"more than {most} different things were refused"
            found.append(Denial(kind="connect", what="others", why=why, count=further))
        return tuple(found)

    def allowed(self) -> tuple[AllowedAttempt, ...]:
        with self._lock:
            found = [replace(passage, count=count) for passage, count in self._passages.counted()]
            further = self._passages.further
        return (*found, AllowedAttempt("connect", "others", "", further)) if further else tuple(found)

    def failures(self) -> tuple[EgressFailure, ...]:
        with self._lock:
            return tuple(EgressFailure(reason, count) for reason, count in self._failures.counted())

    def alerts(self) -> tuple[CanaryAlert, ...]:
        with self._lock:
            return tuple(self._alarms)
