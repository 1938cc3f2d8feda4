"""What one run did and was refused on its way out: each thing once, with a count, and a bounded number of things."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Generic, TypeVar

from fumehood.policy.decision import Decision
from fumehood.policy.egress import AllowedAttempt, Attempt, to_allowed, to_denial
from fumehood.results import Denial
from fumehood.secret_scan.canaries import CanaryAlert

T = TypeVar("T")


class Tally(Generic[T]):
    """In the order of their first time. A million times costs no more memory than the most that are told apart."""

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
        self._denials = Tally[Denial](denials)
        self._passages = Tally[AllowedAttempt](allowed)
        self._alarms: dict[CanaryAlert, None] = {}
        self._lock = threading.Lock()

    def record(self, decision: Decision[Attempt]) -> None:
        with self._lock:
            if decision.allowed:
                self._passages.add(to_allowed(decision))
            else:
                self._denials.add(to_denial(decision))

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

    def alerts(self) -> tuple[CanaryAlert, ...]:
        with self._lock:
            return tuple(self._alarms)
