"""What workers report to a server: what runs have used, and checkpoints of their audit logs."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

from fumehood.audit.checkpoints import checkpoint_of
from fumehood.audit.trail import Trail
from fumehood.audit.witness import CheckpointWitnessed
from fumehood.cluster.lease import now
from fumehood.errors import FumehoodError
from fumehood.server.chains import AuditChains
from fumehood.server.fleet.known_worker import KnownWorker
from fumehood.server.tenants.meter import Meters
from fumehood.server.tenants.usage import CPU, EGRESS, MEMORY, RUNS

# Of a second or two; many of them together are still a number.
_MOST = 1e18
_MOST_BYTES, _MOST_WAITING = 16 * 1024, 10_000
_SECONDS_EACH, _MOST_AT_ONCE = 2.0, 10
_COUNTED = (RUNS, CPU, MEMORY, EGRESS)
_log = logging.getLogger(__name__)


class WorkerReports:
    def __init__(self, meters: Meters, chains: AuditChains) -> None:
        self._meters, self._chains = meters, chains
        self._newest: dict[tuple[str, str], tuple[str, int]] = {}
        """Worker and tenant -> the log, and the number of its newest checkpoint that was witnessed."""
        self._may_write: dict[tuple[str, str], float] = {}
        """Worker and tenant -> how many of its checkpoints may be written by now, as a time that runs ahead."""
        self._waiting: asyncio.Queue[tuple[KnownWorker, bytes]] = asyncio.Queue(_MOST_WAITING)

    def add(self, worker: KnownWorker, data: bytes) -> None:
        """To be taken later: a record waits for the disk, and messages of sandboxes do not wait for that."""
        try:
            # What is too large is refused for its first bytes, and not held meanwhile.
            self._waiting.put_nowait((worker, data[: _MOST_BYTES + 1]))
        except asyncio.QueueFull:
            _log.warning("a report of worker %s is lost: %d wait already", worker.name, _MOST_WAITING)

    async def take_all(self) -> None:
        """Until it is cancelled."""
        while True:
            worker, data = await self._waiting.get()
            try:
                await self.take(worker, data)
            except Exception:
                _log.exception("a report of worker %s could not be taken", worker.name)

    async def take(self, worker: KnownWorker, data: bytes) -> None:
        """Of a tenant that has had a sandbox there by this server; anything else is not believed."""
        try:
            if len(data) > _MOST_BYTES:
                raise ValueError(f"more than {_MOST_BYTES} bytes at once")
            report: Mapping[str, Any] = json.loads(data)
            tenant = str(report["tenant"])
            if tenant not in worker.served or not self._meters.knows(tenant):
                return
            if "checkpoint" in report:
                await self._witness(worker, tenant, report["checkpoint"])
            else:
                self._add_usage(tenant, report["used"])
        except (ValueError, KeyError, TypeError, RecursionError, FumehoodError) as error:
            _log.warning("worker %s reports what cannot be used: %s", worker.name, error)

    def _add_usage(self, tenant: str, given: Mapping[str, Any]) -> None:
        used = {name: float(given[name]) for name in _COUNTED if name in given}
        if not all(0 <= amount < _MOST for amount in used.values()):
            raise ValueError("usage that cannot be")
        self._meters.add(tenant, used)

    def _take_turn(self, place: tuple[str, str]) -> bool:
        """A worker shows one every five seconds. Each is a record in the tenant's log, and waits for the disk."""
        due = max(self._may_write.get(place, 0.0), now() - _MOST_AT_ONCE * _SECONDS_EACH) + _SECONDS_EACH
        if due > now():
            return False
        self._may_write[place] = due
        return True

    async def _witness(self, worker: KnownWorker, tenant: str, fields: Mapping[str, Any]) -> None:
        checkpoint = checkpoint_of(fields)
        if checkpoint is None or not 0 <= checkpoint.seq < _MOST:
            raise ValueError("a checkpoint of another form")
        if not checkpoint.is_signed_by(bytes.fromhex(checkpoint.key)):
            raise ValueError("a checkpoint that is not signed")
        place = worker.name, tenant
        log, seq = self._newest.get(place, ("", 0))
        if checkpoint.log == log and checkpoint.seq <= seq:
            return
        if not self._take_turn(place):
            raise ValueError("more checkpoints than a worker makes")
        self._newest[place] = checkpoint.log, checkpoint.seq
        trail = Trail(self._chains.log_of(tenant), f"worker:{worker.name}", tenant)
        await trail.write(CheckpointWitnessed.of(worker.name, checkpoint))
