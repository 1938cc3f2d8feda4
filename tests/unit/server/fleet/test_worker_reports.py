"""What a worker reports is believed of tenants whose sandboxes it has had, and of no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
