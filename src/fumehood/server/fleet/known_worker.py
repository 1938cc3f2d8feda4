"""A worker as it has described itself last, and what this server has seen of it since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

from fumehood.cluster.claims import UserClaims
from fumehood.cluster.lease import now

_MOST_SLOTS = 1_000_000
_MOST_SHOWN = 64
_MOST_FAILURES = 5
_REST_SECONDS = 60.0


class KnownWorker:
    """One epoch of a worker: a process that has begun anew is another one."""

    def __init__(self, claims: UserClaims, entry: Mapping[str, Any]) -> None:
        self.name, self.tenants = claims.name, claims.tenants
        self.epoch = int(entry["epoch"])
        self.served: set[str] = set()
        """Tenants that have had a sandbox there by this server: of no others does it report anything."""
        self.lost: str | None = None
        """Why it is lost, if it is."""
        self._failures = Counter[str]()
        """By tenant, in a row. A tenant can make its own openings fail, and keeps no worker from others with that."""
        self._rests_until: dict[str, float] = {}
        self.failure = ""
        """How the last opening that failed here did."""
        self.update(entry)

    def update(self, entry: Mapping[str, Any]) -> None:
        """All of it or nothing. It may lie about its room, but only with what placement can count with."""
        client, slots, free = (int(entry[name]) for name in ("client", "slots", "free"))
        if not 0 <= free <= slots <= _MOST_SLOTS:
            raise ValueError("a room that cannot be")
        backends, warm = frozenset(map(str, entry["backends"])), frozenset(map(str, entry["warm"]))
        labels = dict(cast("dict[str, str]", entry["labels"]).items())
        if len(labels) > _MOST_SHOWN or len(backends) > _MOST_SHOWN or len(warm) > _MOST_SHOWN:
            raise ValueError("more than a worker has to say")
        self.labels = {str(name): str(value) for name, value in labels.items()}
        self.version, self.is_draining = str(entry["version"]), bool(entry["draining"])
        self.client, self.slots, self.free, self.backends, self.warm = client, slots, free, backends, warm
        self.seen = now()

    def reserve(self) -> None:
        """Before it answers: others have to ask elsewhere, or wait. What it says of itself next replaces this."""
        self.free -= 1

    def give_back(self) -> None:
        self.free += 1

    def note_full(self) -> None:
        """It has refused an opening, and is not asked again until it announces room."""
        self.free = 0

    def is_resting(self, tenant: str) -> bool:
        """Whether it is out of rotation for a tenant, whose openings have failed here again and again."""
        return now() < self._rests_until.get(tenant, 0.0)

    def note_success(self, tenant: str) -> None:
        self.served.add(tenant)
        self._failures.pop(tenant, None)

    def note_failure(self, tenant: str, reason: str) -> None:
        self._failures[tenant] += 1
        self.failure = reason
        if self._failures[tenant] >= _MOST_FAILURES:
            del self._failures[tenant]
            self._rests_until = {each: until for each, until in self._rests_until.items() if now() < until}
            self._rests_until[tenant] = now() + _REST_SECONDS

    def describe(self) -> dict[str, object]:
        is_resting = any(map(self.is_resting, self._rests_until))
        state = "draining" if self.is_draining else "resting" if is_resting else "ready"
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
