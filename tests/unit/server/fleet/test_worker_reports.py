"""What a worker reports is believed of tenants whose sandboxes it has had, and of no others."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fumehood.audit.checkpoints import sign_checkpoint
from fumehood.audit.inspection import open_store
from fumehood.audit.keys import SigningKey
from fumehood.audit.store import Query
from fumehood.audit.witness import CheckpointWitnessed
from fumehood.cluster.claims import UserClaims
from fumehood.server.chains import AuditChains
from fumehood.server.fleet.known_worker import KnownWorker
from fumehood.server.fleet.worker_reports import WorkerReports
from fumehood.server.storage.database import Database
from fumehood.server.tenants.meter import Meters
from fumehood.server.tenants.tenants import create_tenant
from fumehood.server.tenants.usage import CPU

pytestmark = pytest.mark.anyio
_ENTRY = {"epoch": 1, "client": 1, "slots": 1, "free": 1, "backends": ["native"], "warm": [], "labels": {}}


async def test_a_worker_charges_no_tenant_that_it_has_no_sandbox_of(database: Database, tmp_path: Path) -> None:
    meters = Meters(database, "instance")
    for tenant in ("acme", "globex"):
        await create_tenant(database, tenant, "test")
        await meters.of(tenant)
    reports = WorkerReports(meters, AuditChains(tmp_path))
    worker = KnownWorker(UserClaims("w", "U", "A", frozenset()), {**_ENTRY, "version": "1", "draining": False})
    worker.note_success("acme")
    for tenant, amount in (("acme", 5.0), ("globex", 5.0), ("acme", 1e300), ("acme", -1.0)):
        await reports.take(worker, json.dumps({"tenant": tenant, "used": {CPU: amount}}).encode())
    assert [(await meters.of(tenant)).counts.today(CPU) for tenant in ("acme", "globex")] == [5.0, 0.0]


async def test_a_worker_cannot_fill_the_log_of_a_tenant_with_checkpoints(database: Database, tmp_path: Path) -> None:
    """Any key signs one, of a log of any name: each would be a record that is kept for ever."""
    meters, chains = Meters(database, "instance"), AuditChains(tmp_path)
    await create_tenant(database, "acme", "test")
    await meters.of("acme")
    worker = KnownWorker(UserClaims("w", "U", "A", frozenset()), {**_ENTRY, "version": "1", "draining": False})
    worker.note_success("acme")
    reports, key = WorkerReports(meters, chains), SigningKey(Ed25519PrivateKey.generate())
    for number in range(1, 50):
        shown = sign_checkpoint(f"log {number}", number, bytes(32), "2026-01-01T00:00:00Z", "w", key)
        await reports.take(worker, json.dumps({"tenant": "acme", "checkpoint": asdict(shown)}).encode())
    for lie in ({"seq": 10**400}, {"log": "x" * 100_000}, {"seq": "1"}):
        shown = {**asdict(sign_checkpoint("log", 1, bytes(32), "now", "w", key)), **lie}
        await reports.take(worker, json.dumps({"tenant": "acme", "checkpoint": shown}).encode())
    records = list(open_store(chains.log_of("acme").folder).find(Query(kind=CheckpointWitnessed.kind)))
    assert 1 <= len(records) <= 11
