"""A worker as it has described itself last, and what this server has seen of it since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from fumehood.cluster.claims import UserClaims
from fumehood.cluster.lease import now

_MOST_FAILURES = 5
_REST_SECONDS = 60.0


class KnownWorker:
    """One epoch of a worker: a process that has begun anew is another one."""

    def __init__(self, claims: UserClaims, entry: Mapping[str, Any]) -> None:
        self.name, self.tenants = claims.name, claims.tenants
        self.epoch = int(entry["epoch"])
        self.lost: str | None = None
        """Why it is lost, if it is."""
        self._failures = 0
        self._rests_until = 0.0
        self.failure = ""
        """How the last opening that failed here did."""
        self.update(entry)

    def update(self, entry: Mapping[str, Any]) -> None:
        self.seen = now()
        self.client = int(entry["client"])
        self.slots, self.free = int(entry["slots"]), int(entry["free"])
        self.backends = frozenset(map(str, entry["backends"]))
        self.warm = frozenset(map(str, entry["warm"]))
        labels: object = entry["labels"]
        self.labels = {str(name): str(value) for name, value in cast("dict[str, str]", labels).items()}
        self.version, self.is_draining = str(entry["version"]), bool(entry["draining"])

    @property
    def is_resting(self) -> bool:
        """Whether it is out of rotation, because openings have failed here again and again."""
        return now() < self._rests_until

    def note_success(self) -> None:
        self._failures, self.free = 0, self.free - 1

    def note_failure(self, reason: str) -> None:
        self._failures, self.failure = self._failures + 1, reason
        if self._failures >= _MOST_FAILURES:
            self._failures, self._rests_until = 0, now() + _REST_SECONDS

    def describe(self) -> dict[str, object]:
        state = "draining" if self.is_draining else "resting" if self.is_resting else "ready"
        return {
            "name": self.name,
            "epoch": self.epoch,
            "state": state,
            "version": self.version,
            "backends": sorted(self.backends),
            "slots": self.slots,
            "free": self.free,
            "labels": self.labels,
            "tenants": sorted(self.tenants),
            "failure": self.failure,
        }
