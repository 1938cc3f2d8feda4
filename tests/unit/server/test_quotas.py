"""Quotas that hold: bytes through the gateway, workspaces, what several servers count together, and wrong clocks."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from outside import Outside, open_outside
from unit.server.hosting import Hosted, hosted

from fumehood.server import instances
from fumehood.server.identity.principals import Scope
from fumehood.server.sandboxes import records
from fumehood.server.sandboxes.records import SandboxRecord
from fumehood.server.storage.choice import open_database
from fumehood.server.storage.database import Database, StorageError, Transaction
from fumehood.server.storage.sqlite import SqliteDatabase
from fumehood.server.tenants.meter import Meters
from fumehood.server.tenants.quotas import Quota, QuotaExceededError, read_state, set_limit
from fumehood.server.tenants.usage import CPU, EGRESS, OPENINGS, add_usage, used_today, used_within

pytestmark = pytest.mark.anyio
T = TypeVar("T")
GIB = 1024**3
FETCH = "import socket; c = socket.create_connection(('raw.example', {port}), 5); c.sendall(b'x' * {size}); c.recv(99)"


def record(name: str, workspace_bytes: int) -> SandboxRecord:
    now = time.time()
    return SandboxRecord(name, "closed", "sha256:0", "key:test", {}, now, now + 60, None, None, workspace_bytes)


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    with open_outside() as found:
        yield found


async def used(host: Hosted, quota: str) -> float:
    client = await host.key("acme", [])
    return next(each["used"] for each in (await client.get("/quotas")).json() if each["quota"] == quota)


async def test_bytes_through_the_gateway_are_counted_refused_at_the_limit_and_remembered(
    tmp_path: Path, outside: Outside
) -> None:
    port = outside.raw.port
    rule = f"{{host: raw.example, ports: [{port}], protocol: tcp, private: true}}"
    policy = f"version: 1\nnetwork: {{allow: [{rule}]}}\n"
    async with hosted(tmp_path / "state", private_networks=["acme"]) as host:
        client = await host.tenant("acme")
        assert (await client.put("/policies/out", json={"text": policy})).status_code == 200
        await set_limit(host.server.database, "acme", Quota.EGRESS, 20_000, "ada")
        run = f"/sandboxes/{(await client.post('/sandboxes', json={'policy': 'out'})).json()['id']}/runs"
        first = (await client.post(run, json={"code": FETCH.format(port=port, size=1000)})).json()
        assert (first["status"], first["denials"]) == ("success", [])
        await client.post(run, json={"code": FETCH.format(port=port, size=30_000)})
        before = outside.raw.connections
        refused = (await client.post(run, json={"code": FETCH.format(port=port, size=1)})).json()
        assert outside.raw.connections == before  # refused before anything leaves
        assert refused["status"] == "error"
        assert "the quota egress_bytes_per_day is used up" in refused["denials"][0]["why"]
        assert "(set by ada)" in refused["denials"][0]["why"]
        await host.server.tenancy.meters.settle_busy()
        assert 20_000 <= await used(host, "egress_bytes_per_day") < 22_000
        usage = (await client.get("/usage")).json()["total"]
        assert (usage["egress_bytes"] >= 20_000, usage["memory_byte_seconds"] > 0, usage["runs"]) == (True, True, 3)
    # Another server, the same database: it is still used up. Another tenant has its own.
    async with hosted(tmp_path / "state", private_networks=["acme", "beta"]) as host:
        client = await host.key("acme", [Scope.RUN])
        run = f"/sandboxes/{(await client.post('/sandboxes', json={'policy': 'out'})).json()['id']}/runs"
        again = (await client.post(run, json={"code": FETCH.format(port=port, size=1)})).json()
        assert "egress_bytes_per_day" in again["denials"][0]["why"]
        other = await host.tenant("beta")
        assert (await other.put("/policies/out", json={"text": policy})).status_code == 200
        run = f"/sandboxes/{(await other.post('/sandboxes', json={'policy': 'out'})).json()['id']}/runs"
        assert (await other.post(run, json={"code": FETCH.format(port=port, size=1)})).json()["status"] == "success"


async def test_workspaces_of_open_sandboxes_together_are_limited(database: Database) -> None:
    await set_limit(database, "acme", Quota.WORKSPACE, 3 * GIB, "ada")
    await records.admit(database, "acme", "srv", record("sbx_1", 2 * GIB), "token")
    with pytest.raises(QuotaExceededError) as refused:
        await records.admit(database, "acme", "srv", record("sbx_2", 2 * GIB), "token")
    assert (refused.value.quota, refused.value.used, refused.value.author) == (Quota.WORKSPACE, 2 * GIB, "ada")
    await records.admit(database, "acme", "srv", record("sbx_3", GIB), "token")
    await records.end(database, "acme", "sbx_1", "closed")
    await records.admit(database, "acme", "srv", record("sbx_4", 2 * GIB), "token")


async def test_servers_of_one_database_count_runs_processor_time_and_bytes_together(
    database_url: str, database: Database
) -> None:
    """Two servers with PostgreSQL; with SQLite, which has one server, two meters that share its connection."""
    second = database if isinstance(database, SqliteDatabase) else open_database(database_url)
    await second.prepare()
    for quota, value in ((Quota.RUNS, 2), (Quota.CPU, 10), (Quota.EGRESS, 1000)):
        await set_limit(database, "acme", quota, value, "ada")
    here, there = instances.new_instance(), instances.new_instance()
    await instances.register_instance(database, here)
    await instances.register_instance(second, there)
    ours, theirs = Meters(database, here), Meters(second, there)
    first, other = await ours.of("acme"), await theirs.of("acme")
    first.begin()
    other.begin()
    await ours.settle_busy()
    await theirs.settle_busy()
    with pytest.raises(QuotaExceededError) as refused:
        other.begin()
    assert (refused.value.quota, refused.value.used) == (Quota.RUNS, 2)
    first.end("run_1", None, 6.0)
    other.end("run_2", None, 6.0)
    first.egress.count(600)
    other.egress.count(600)
    assert first.egress.left_bytes() == 400
    await ours.settle_busy()
    await theirs.settle_busy()
    assert other.egress.left_bytes() == -200
    with pytest.raises(QuotaExceededError) as refused:
        other.begin()
    assert (refused.value.quota, refused.value.used) == (Quota.CPU, 12.0)
    # A server that dies with runs under way does not hold their places for ever.
    await set_limit(database, "acme", Quota.CPU, 100, "ada")
    first = await ours.of("acme")
    for _ in range(2):
        first.begin()
    await ours.settle_busy()
    state = {each.quota: each.used for each in await read_state(second, "acme", time.time())}
    assert state[Quota.RUNS] == 2
    await instances.end_instance(second, here)
    (await theirs.of("acme")).begin()
    if second is not database:
        await second.close()


async def test_what_could_not_be_written_is_counted_later_and_once(database: Database) -> None:
    meters = Meters(database, "srv_1")
    meter = await meters.of("acme")
    meter.egress.count(500)

    class LostAtTheEnd:
        async def transact(self, tenant: str, work: Callable[[Transaction], Awaitable[T]]) -> T:
            async with database.transaction(tenant) as transaction:
                await work(transaction)
                raise StorageError("the connection is lost before the commit")

    with pytest.raises(StorageError):
        await meter.settle(LostAtTheEnd(), "srv_1")  # type: ignore[arg-type]
    assert meter.counts.today(EGRESS) == 500
    for _ in range(2):
        await meters.settle_all()
        assert meter.counts.today(EGRESS) == 500
    async with database.transaction("acme") as transaction:
        assert await used_today(transaction, "acme", EGRESS, time.time()) == 500


async def test_a_clock_that_is_set_back_neither_forgets_nor_blocks_for_ever(database: Database) -> None:
    noon = 1_000_000_000.0 - 1_000_000_000.0 % 86400 + 43200
    async with database.transaction("acme") as transaction:
        await add_usage(transaction, "acme", noon, **{CPU: 5, OPENINGS: 3})
        # The clock goes back an hour: what was used today is still used.
        assert await used_today(transaction, "acme", CPU, noon - 3600) == 5
        # It was a year ahead and is set right: that year's day is not today's, and the minute is free.
        assert await used_today(transaction, "acme", CPU, noon - 365 * 86400) == 0
        assert await used_within(transaction, "acme", OPENINGS, noon - 3600, 60) == 0
