"""What workers report to a server: what runs have used, and checkpoints of their audit logs."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from fumehood.audit.checkpoints import Checkpoint
from fumehood.audit.trail import Trail
from fumehood.audit.witness import CheckpointWitnessed
from fumehood.errors import FumehoodError
from fumehood.server.chains import AuditChains
from fumehood.server.fleet.known_worker import KnownWorker
from fumehood.server.tenants.meter import Meters
from fumehood.server.tenants.usage import CPU, EGRESS, MEMORY, RUNS

# Of a second or two; many of them together are still a number.
_MOST = 1e18
_COUNTED = (RUNS, CPU, MEMORY, EGRESS)
_log = logging.getLogger(__name__)


class WorkerReports:
    def __init__(self, meters: Meters, chains: AuditChains) -> None:
        self._meters, self._chains = meters, chains
        self._newest: dict[tuple[str, str], int] = {}
        """Worker and log -> the number of the newest checkpoint that was witnessed."""

    async def take(self, worker: KnownWorker, data: bytes) -> None:
        """Of a tenant that has had a sandbox there by this server; anything else is not believed."""
        try:
            report: Mapping[str, Any] = json.loads(data)
            tenant = str(report["tenant"])
            if tenant not in worker.served or not self._meters.knows(tenant):
                return
            if "checkpoint" in report:
                await self._witness(worker, tenant, report["checkpoint"])
            else:
                self._add_usage(tenant, report["used"])
        except (ValueError, KeyError, TypeError, FumehoodError) as error:
            _log.warning("worker %s reports what cannot be used: %s", worker.name, error)

    def _add_usage(self, tenant: str, given: Mapping[str, Any]) -> None:
        used = {name: float(given[name]) for name in _COUNTED if name in given}
        if not all(0 <= amount < _MOST for amount in used.values()):
            raise ValueError("usage that cannot be")
        self._meters.add(tenant, used)

    async def _witness(self, worker: KnownWorker, tenant: str, fields: Mapping[str, Any]) -> None:
        checkpoint = Checkpoint(**fields)
        if not checkpoint.is_signed_by(bytes.fromhex(checkpoint.key)):
            raise ValueError("a checkpoint that is not signed")
        place = worker.name, checkpoint.log
        if checkpoint.seq <= self._newest.get(place, 0):
            return
        self._newest[place] = checkpoint.seq
        trail = Trail(self._chains.log_of(tenant), f"worker:{worker.name}", tenant)
        await trail.write(CheckpointWitnessed.of(worker.name, checkpoint))
