"""Policies whose opening fails wherever it is tried are refused for a while, before they take all workers with them."""

from __future__ import annotations

from fumehood.cluster.lease import now
from fumehood.errors import SandboxError

_MOST_WORKERS = 3
_REFUSED_SECONDS = 60.0
_MOST_KEPT = 1_000


class PoisonedPolicies:
    def __init__(self) -> None:
        self._failed: dict[str, set[str]] = {}
        """Digest -> workers on which its last openings have failed."""
        self._refused: dict[str, tuple[float, str]] = {}

    def check(self, digest: str) -> None:
        until, reason = self._refused.get(digest, (0.0, ""))
        if now() < until:
            raise SandboxError(f"sandboxes with this policy could not be opened on {_MOST_WORKERS} workers: {reason}")
        self._refused.pop(digest, None)

    def note(self, digest: str, worker: str, reason: str) -> None:
        if len(self._failed) >= _MOST_KEPT:
            self._failed.clear()
        workers = self._failed.setdefault(digest, set())
        workers.add(worker)
        if len(workers) >= _MOST_WORKERS:
            del self._failed[digest]
            self._refused[digest] = now() + _REFUSED_SECONDS, reason
