"""Which workers are asked for a sandbox, and in which order. Pure: the same question has the same answer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from fumehood.frozen import frozen
from fumehood.server.fleet.known_worker import KnownWorker

_NEARLY_FULL = 0.2


@frozen
class SandboxNeeds:
    tenant: str
    policy_digest: str
    backend: str


def rank_workers(workers: Iterable[KnownWorker], needs: SandboxNeeds) -> list[KnownWorker]:
    """Those that may take it, best first: with room to spare, warm for the policy, and at home for tenant and policy.

    Home is decided by rendezvous hashing, so that sandboxes of one policy meet on the same few hosts.
    """
    return sorted((worker for worker in workers if may_take(worker, needs)), key=lambda each: _rank(each, needs))


def may_take(worker: KnownWorker, needs: SandboxNeeds) -> bool:
    return (
        worker.lost is None
        and not worker.is_draining
        and not worker.is_resting(needs.tenant)
        and worker.free > 0
        and can_serve(worker, needs)
    )


def can_serve(worker: KnownWorker, needs: SandboxNeeds) -> bool:
    """Whether it ever could: it has the backend, and is for this tenant."""
    has_backend = needs.backend == "auto" or needs.backend in worker.backends
    return has_backend and (not worker.tenants or needs.tenant in worker.tenants)


def _rank(worker: KnownWorker, needs: SandboxNeeds) -> tuple[bool, bool, bytes]:
    is_nearly_full = worker.free < worker.slots * _NEARLY_FULL
    home = hashlib.sha256(f"{needs.tenant} {needs.policy_digest} {worker.name}".encode()).digest()
    return is_nearly_full, needs.policy_digest not in worker.warm, home
