"""Policies whose opening fails wherever it is tried are refused for a while, before they take all workers with them."""

from __future__ import annotations

from fumehood.cluster.lease import now
from fumehood.errors import SandboxError

_MOST_WORKERS = 3
_REFUSED_SECONDS = 60.0
_MOST_KEPT = 1_000

TenantPolicy = tuple[str, str]
"""A tenant and the digest of a policy. One tenant's openings may fail by its own quota or secrets, and others have the
same policies: those that come with the package."""


class PoisonedPolicies:
    def __init__(self) -> None:
        self._failed: dict[TenantPolicy, set[str]] = {}
        """Workers on which its last openings have failed."""
        self._refused: dict[TenantPolicy, tuple[float, str]] = {}

    def check(self, policy: TenantPolicy) -> None:
        until, reason = self._refused.get(policy, (0.0, ""))
        if now() < until:
            raise SandboxError(f"sandboxes with this policy could not be opened on {_MOST_WORKERS} workers: {reason}")
        self._refused.pop(policy, None)

    def note(self, policy: TenantPolicy, worker: str, reason: str) -> None:
        for kept in (self._failed, self._refused):
            if len(kept) >= _MOST_KEPT:
                kept.clear()
        workers = self._failed.setdefault(policy, set())
        workers.add(worker)
        if len(workers) >= _MOST_WORKERS:
            del self._failed[policy]
            self._refused[policy] = now() + _REFUSED_SECONDS, reason
