"""What was refused in one run: each thing once, with a count, and not more things than somebody would read."""

from __future__ import annotations

import threading
from dataclasses import replace

from fumehood.policy.egress import Decision
from fumehood.results import Denial


class Ledger:
    """Thread-safe. Being refused a million times costs no more memory than being refused two hundred times."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: dict[Denial, int] = {}
        self._further = 0
        self._lock = threading.Lock()

    def record(self, decision: Decision) -> None:
        denial = decision.denial()
        with self._lock:
            if denial in self._counts or len(self._counts) < self._most:
                self._counts[denial] = self._counts.get(denial, 0) + 1
            else:
                self._further += 1

    def denials(self) -> tuple[Denial, ...]:
        """In the order of their first time; the last one may stand for all that were too many to tell apart."""
        with self._lock:
            found = [replace(denial, count=count) for denial, count in self._counts.items()]
            further = self._further
        if further:
            why = f"more than {self._most} different things were refused"
            found.append(Denial(kind="connect", what="others", why=why, count=further))
        return tuple(found)
