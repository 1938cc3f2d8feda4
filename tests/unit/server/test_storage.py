"""What the server owes to its rows, on both databases: nothing half, nothing counted twice, nothing of others."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable
from contextlib import closing
from pathlib import Path
from unittest.mock import ANY, AsyncMock

import pytest
from postgresql import PostgresServer, running

from fumehood.audit.events import Attachment, SandboxOpened
from fumehood.audit.inspection import open_store
from fumehood.audit.store import Query
from fumehood.errors import PolicyError, UsageError
from fumehood.server import instances
from fumehood.server.chains import AuditChains
from fumehood.server.identity.keys import authenticate, create_key, list_keys, revoke_key
from fumehood.server.identity.principals import NotAuthenticatedError, Principal, Scope
from fumehood.server.sandboxes import records
from fumehood.server.sandboxes.lost_records import SERVED_AS
from fumehood.server.sandboxes.records import SandboxRecord
from fumehood.server.storage import schema
from fumehood.server.storage.choice import open_database
from fumehood.server.storage.database import EVERYTHING, Database, DuplicateError, StorageError, Transaction
from fumehood.server.storage.sqlite import SqliteDatabase
from fumehood.server.tenants.catalogue import FailedTestsError, find_policy, list_policies, put_policy
from fumehood.server.tenants.quotas import DEFAULTS, Quota, QuotaExceededError, read_limits, set_limit
from fumehood.server.tenants.secrets import SealingKey, list_secrets, put_secret, read_secrets, remove_secret
from fumehood.server.tenants.tenants import TenantRecord, create_tenant, list_tenants, remove_tenant
from fumehood.server.tenants.usage import add_usage, used_within

pytestmark = pytest.mark.anyio
INSERT = "INSERT INTO quotas (tenant, name, value, author) VALUES (?,?,?,?)"


def record(name: str, *, opened: float | None = None) -> SandboxRecord:
    now = time.time() if opened is None else opened
    return SandboxRecord(name, "closed", "sha256:0", "key:test", {"a": "b"}, now, now + 60, None, None)


async def test_a_transaction_that_fails_leaves_nothing(database: Database) -> None:
    async def do(*statements: tuple[str, *tuple[str | int, ...]], error: type[Exception] | None = None) -> None:
        async with database.transaction("acme") as transaction:
            for statement, *values in statements:
                await transaction.execute(statement, *values)
            if error:
                raise error

    insert = (INSERT, "acme", "runs", 1, "me")
    with pytest.raises(RuntimeError):
        await do(insert, error=RuntimeError)
    with pytest.raises(DuplicateError):
        await do(insert, insert)
    with pytest.raises(StorageError):
        await do(insert, ("this is not SQL",))
    async with database.transaction("acme") as transaction:
        assert await transaction.rows("SELECT * FROM quotas WHERE tenant = ?", "acme") == []
        assert await transaction.execute(INSERT, "acme", "?%s'", 4, "me") == 1
    async with database.transaction("acme") as transaction:
        assert await transaction.row("SELECT name, value FROM quotas") == {"name": "?%s'", "value": 4}
        assert await transaction.row("SELECT name FROM quotas WHERE name LIKE '%nothing%'") is None


async def test_a_cancelled_transaction_leaves_nothing_and_blocks_nothing(database: Database) -> None:
    for steps in range(12):

        async def write() -> None:
            async with database.transaction("acme") as transaction:
                await transaction.execute(INSERT, "acme", "runs", 1, "me")
                await transaction.execute("DELETE FROM quotas WHERE name = ?", "other")
                await asyncio.Event().wait()

        task = asyncio.ensure_future(write())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async with database.transaction("acme") as transaction:
        assert await transaction.rows("SELECT * FROM quotas") == []


async def test_work_that_is_committed_together_fails_alone(database: Database) -> None:
    async def insert(name: str, error: type[Exception] | None = None) -> str:
        async def work(transaction: Transaction) -> str:
            await transaction.execute(INSERT, "acme", name, 1, "me")
            if error:
                raise error
            found = await transaction.row("SELECT COUNT(*) AS n FROM quotas WHERE name = ?", name)
            return f"{name}: {found and found['n']}"

        return await database.transact("acme", work)

    wanted = [insert("a"), insert("b", RuntimeError), insert("a"), insert("c"), insert("nul\0"), insert("d", KeyError)]
    outcomes = await asyncio.gather(*wanted, return_exceptions=True)
    kinds = [outcome if isinstance(outcome, str) else type(outcome) for outcome in outcomes]
    assert kinds == ["a: 1", RuntimeError, DuplicateError, "c: 1", UsageError, KeyError]
    async with database.transaction("acme") as transaction:
        assert [row["name"] for row in await transaction.rows("SELECT name FROM quotas ORDER BY name")] == ["a", "c"]


async def test_work_whose_commit_fails_has_not_happened_for_any_of_its_callers(tmp_path: Path) -> None:
    """A disk that is full: SQLite takes back the whole of it."""
    database = open_database(f"sqlite:///{tmp_path}/server.db")
    await database.prepare()
    async with database.transaction("acme") as transaction:
        await transaction.rows("PRAGMA max_page_count = 1")  # it becomes the pages that there are

    def insert(name: str, size: int) -> Awaitable[int]:
        return database.transact("acme", lambda each: each.execute(INSERT, "acme", name, 1, "m" * size))

    outcomes = await asyncio.gather(insert("a", 1), insert("b", 100_000), insert("c", 1), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StorageError] * 3
    assert await insert("d", 1) == 1
    async with database.transaction("acme") as transaction:
        assert [row["name"] for row in await transaction.rows("SELECT name FROM quotas")] == ["d"]
    await database.close()
    with pytest.raises(StorageError):  # and nothing waits for a database that is closed
        await insert("e", 1)


async def test_two_servers_admit_no_more_than_one_quota_allows(database_url: str, database: Database) -> None:
    """Two of them with PostgreSQL, and two tasks of one with SQLite, which a second server cannot open."""
    is_shared = not isinstance(database, SqliteDatabase)
    second = open_database(database_url) if is_shared else database
    await second.prepare()
    await set_limit(database, "acme", Quota.SANDBOXES, 5, "me")

    async def opening(number: int) -> bool:
        try:
            await records.admit((database, second)[number % 2], "acme", "srv", record(f"sbx_{number}"), "token")
        except QuotaExceededError as error:
            refusals.add((error.quota, error.author, error.used))
            return False
        return True

    refusals: set[tuple[str, str, float]] = set()
    admitted = await asyncio.gather(*map(opening, range(24)))
    assert sum(admitted) == 5 == len(await records.list_open(database, "acme"))
    assert await records.end(second, "acme", (await records.list_open(database, "acme"))[0].id, "closed")
    assert await opening(100)
    assert refusals == {(Quota.SANDBOXES, "me", 5)}
    if is_shared:
        await second.close()


async def test_openings_and_processor_time_are_quotas_too(database: Database) -> None:
    await set_limit(database, "acme", Quota.OPENINGS, 1, "me")
    # The middle of a minute, which does not end while the test runs.
    now = 1_000_000_020.0
    await records.admit(database, "acme", "srv", record("sbx_1", opened=now), "token")
    with pytest.raises(QuotaExceededError) as refused:
        await records.admit(database, "acme", "srv", record("sbx_2", opened=now), "token")
    assert (refused.value.quota, refused.value.resets) == (Quota.OPENINGS, 1_000_000_020 - 1_000_000_020 % 60 + 60)
    await records.admit(database, "other", "srv", record("sbx_3", opened=now), "token")
    async with database.transaction("other") as transaction:
        await add_usage(transaction, "other", now, cpu_seconds=1.5)
        await add_usage(transaction, "other", now, cpu_seconds=DEFAULTS[Quota.CPU])
        assert await used_within(transaction, "other", "cpu_seconds", now - 60, 120) == DEFAULTS[Quota.CPU] + 1.5
        assert await used_within(transaction, "other", "cpu_seconds", now + 60, 60) == 0
    with pytest.raises(QuotaExceededError, match="cpu_seconds_per_day is used up"):
        await records.admit(database, "other", "srv", record("sbx_4", opened=now), "token")


async def test_limits_are_the_tenant_s_own_or_the_default(database: Database) -> None:
    with pytest.raises(UsageError, match="not a quota"):
        await set_limit(database, "acme", Quota.RUNS, float("nan"), "me")
    await set_limit(database, "acme", Quota.RUNS, 3, "me")
    await set_limit(database, "acme", Quota.RUNS, 4, "you")
    async with database.transaction("acme") as transaction:
        limits = await read_limits(transaction, "acme")
    assert (limits[Quota.RUNS].value, limits[Quota.RUNS].author) == (4, "you")
    assert (limits[Quota.SANDBOXES].value, limits[Quota.SANDBOXES].author) == (DEFAULTS[Quota.SANDBOXES], "default")


async def test_the_life_of_a_key(database: Database) -> None:
    key, details = await create_key(database, "acme", "ci", [Scope.RUN, Scope.FILES], networks=["10.0.0.0/8"])
    assert key not in str(await list_keys(database, "acme"))
    assert await authenticate(database, key, "10.1.2.3") == Principal(
        "acme", f"key:{details.id}", frozenset({Scope.RUN, Scope.FILES})
    )
    other = key[:20] + ("A" if key[20] != "A" else "B") + key[21:]
    old, _ = await create_key(database, "acme", "old", [Scope.RUN], expires=time.time() - 1)
    for wrong, address in (
        (key, "192.0.2.1"),
        (key, None),
        (other, "10.1.2.3"),
        (old, None),
        ("", None),
        ("é" * 60, ""),
    ):
        with pytest.raises(NotAuthenticatedError):
            await authenticate(database, wrong, address)
    assert not await revoke_key(database, "other", details.id)
    assert await revoke_key(database, "acme", details.id)
    assert not await revoke_key(database, "acme", details.id)
    with pytest.raises(NotAuthenticatedError):
        await authenticate(database, key, "10.1.2.3")
    with pytest.raises(UsageError, match="not a network"):
        await create_key(database, "acme", "x", [Scope.RUN], networks=["10.0.0.1/8"])


async def test_a_catalogue_keeps_every_version_and_refuses_what_is_not_the_tenant_s(database: Database) -> None:
    first = await put_policy(database, "acme", "mine", "version: 1\nresources: {memory: 64M}\n", "me")
    assert await put_policy(database, "acme", "mine", "version: 1\nresources: {memory: 64M}\n", "you") == first
    second = await put_policy(database, "acme", "mine", "version: 1\nresources: {memory: 32M}\n", "you")
    assert [(entry.version, entry.author) for entry in await list_policies(database, "acme")] == [(2, "you"), (1, "me")]
    found = await find_policy(database, "acme", "mine")
    assert found is not None
    assert found.digest == second.digest != first.digest
    assert await find_policy(database, "other", "mine") is None
    with pytest.raises(FailedTestsError, match=r"tests\[0\]: connect a.example:443: expected allow"):
        await put_policy(
            database, "acme", "bad", "version: 1\ntests: [{connect: 'a.example:443', expect: allow}]\n", "me"
        )
    for text in (
        "version: 1\nfilesystem: {mounts: [{source: /etc, target: /data}]}\n",
        "version: 1\ndocker: {host: 'unix:///run/docker.sock'}\n",
        "version: 1\nenvironment: {requirements: /etc/passwd}\n",
        "version: 1\nsecrets: [{name: a, from_file: /etc/shadow, inject: {host: a.example, header: Authorization}}]\n",
        "version: 1\nfilters: {canaries: [{name: a, from_file: /etc/shadow}]}\n",
    ):
        with pytest.raises(PolicyError, match=r"of a tenant|secret"):
            await put_policy(database, "acme", "reaching", text, "me")
    for name in ("", "../x", "Upper", "a" * 64):
        with pytest.raises(UsageError, match="not the name"):
            await put_policy(database, "acme", name, "version: 1\n", "me")


async def test_tenants_come_with_a_catalogue_and_go_with_all_rows(database: Database) -> None:
    await create_tenant(database, "acme", "me")
    with pytest.raises(UsageError, match="already"):
        await create_tenant(database, "acme", "me")
    for name in ("*", "", "Acme", "a/b", "-a", "a" * 41):
        with pytest.raises(UsageError, match="not a name"):
            await create_tenant(database, name, "me")
    assert {entry.name for entry in await list_policies(database, "acme")} >= {"closed", "build"}
    await records.admit(database, "acme", "srv", record("sbx_1"), "token")
    with pytest.raises(UsageError, match="open sandboxes"):
        await remove_tenant(database, "acme")
    await records.end(database, "acme", "sbx_1", "closed")
    await remove_tenant(database, "acme")
    assert await list_tenants(database) == []
    async with database.transaction(EVERYTHING) as transaction:
        for table in schema.OF_TENANTS:
            assert await transaction.rows(f"SELECT * FROM {table}") == []


async def test_a_secret_is_sealed_for_its_place(database: Database, tmp_path: Path) -> None:
    key = SealingKey.at(tmp_path / "sealing.key")
    await put_secret(database, key, "acme", "TOKEN", "first", "me")
    await put_secret(database, SealingKey.at(tmp_path / "sealing.key"), "acme", "TOKEN", "hunter2", "me")
    assert await read_secrets(database, key, "acme") == {"TOKEN": "hunter2"}
    assert "hunter2" not in repr(await list_secrets(database, "acme"))
    async with database.transaction(EVERYTHING) as transaction:
        assert "hunter2" not in repr(await transaction.rows("SELECT * FROM secrets"))
        await transaction.execute(
            "INSERT INTO secrets (tenant, name, sealed, author, created) "
            "SELECT 'other', name, sealed, author, created FROM secrets"
        )
    with pytest.raises(UsageError, match="sealed with another key, or for another place"):
        await read_secrets(database, key, "other")
    assert await remove_secret(database, "acme", "TOKEN")
    assert not await remove_secret(database, "acme", "TOKEN")
    (tmp_path / "sealing.key").chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        SealingKey.at(tmp_path / "sealing.key")


async def two_servers(database: Database) -> tuple[str, str]:
    names = instances.new_instance(), instances.new_instance()
    for name in names:
        await instances.register_instance(database, name)
    return names


async def test_what_a_dead_server_had_open_is_lost(database: Database) -> None:
    dead, alive = await two_servers(database)
    await records.admit(database, "acme", dead, record("sbx_1"), "token")
    await records.admit(database, "acme", alive, record("sbx_2"), "token")
    assert await instances.bury_dead(database, alive, alone=False) == []
    async with database.transaction(EVERYTHING) as transaction:
        await transaction.execute("UPDATE instances SET seen = seen - ? WHERE instance = ?", 120, dead)
    assert await instances.bury_dead(database, alive, alone=False) == [dead]
    lost = await records.find(database, "acme", "sbx_1")
    assert lost is not None
    assert (lost.cause, lost.ended) == ("lost", ANY)
    assert not await records.end(database, "acme", "sbx_1", "closed")
    assert [each.id for each in await records.list_open(database, "acme")] == ["sbx_2"]
    assert not await instances.beat(database, dead)
    assert await instances.beat(database, alive)


async def test_a_server_of_this_folder_that_has_ended_is_not_waited_for(database: Database, tmp_path: Path) -> None:
    dead, alive = await two_servers(database)
    await records.admit(database, "acme", dead, record("sbx_1"), "token")
    chains, locks = AuditChains(tmp_path / "state"), instances.InstanceLocks(tmp_path / "state")
    others = instances.LostServers(database, chains, locks, alive, is_shared=True)
    with locks.held(alive):
        with locks.held(dead):
            (locked,) = (tmp_path / "state" / "instances").glob(f"{dead}.*")
            kept = locked.with_suffix(".of-another-machine")
            os.link(locked, kept)
            await others.settle()
            assert [each.id for each in await records.list_open(database, "acme")] == ["sbx_1"]
        await others.settle()  # what another machine has released says nothing
        assert [each.id for each in await records.list_open(database, "acme")] == ["sbx_1"]
        locked.touch()  # as a process leaves it that was killed
        await others.settle()
    assert await records.list_open(database, "acme") == []
    assert not kept.exists()


async def test_a_server_that_dies_while_it_ends_another_leaves_that_to_the_next(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, alive = await two_servers(database)
    await records.admit(database, "acme", dead, record("sbx_1"), "token")
    chains, locks = AuditChains(tmp_path / "state"), instances.InstanceLocks(tmp_path / "state")
    with locks.held(dead):
        (locked,) = (tmp_path / "state" / "instances").glob(f"{dead}.*")
    locked.touch()  # as a process leaves it that was killed
    others = instances.LostServers(database, chains, locks, alive, is_shared=True)
    with monkeypatch.context() as patch:
        patch.setattr(instances, "lose_all", AsyncMock(side_effect=OSError))
        with pytest.raises(OSError):
            await others.settle()
    await others.settle()
    assert await records.list_open(database, "acme") == []


async def test_the_lock_of_a_server_on_another_machine_stays_as_long_as_that_lives(
    database: Database, tmp_path: Path
) -> None:
    elsewhere, alive = await two_servers(database)
    chains, locks = AuditChains(tmp_path / "state"), instances.InstanceLocks(tmp_path / "state")
    theirs = tmp_path / "state" / "instances" / f"{elsewhere}.of-another-boot"
    theirs.touch()  # a lock that this kernel does not know of
    others = instances.LostServers(database, chains, locks, alive, is_shared=True)
    await others.settle()
    assert locks.names() == {elsewhere}  # so that what was sent along to it is not removed
    await instances.end_instance(database, elsewhere)
    await others.settle()
    assert locks.names() == frozenset()


async def test_runs_of_a_lost_server_get_one_end_whoever_finds_it_dead(database: Database, tmp_path: Path) -> None:
    dead, alive = await two_servers(database)
    await records.admit(database, "acme", dead, record("sbx_1"), "token")
    chains, locks = AuditChains(tmp_path / "state"), instances.InstanceLocks(tmp_path / "state")
    trail = chains.trail_of(Principal("acme", "key:test", frozenset())).within(**{SERVED_AS: "sbx_1"}, sandbox="s")
    await trail.write(SandboxOpened("sha256:0", None, Attachment(b"{}"), "native", Attachment(b"{}"), None, None, 1))
    others = [instances.LostServers(database, chains, locks, alive, is_shared=True) for _ in range(2)]
    await others[0].settle()
    await instances.end_instance(database, dead)  # by a server elsewhere
    for each in (*others, *others):
        await each.settle()
    with closing(open_store(chains.log_of("acme").folder)) as store:
        kinds = [each.kind for each in store.find(Query())]
    assert kinds.count("sandbox.lost") == 1


async def test_one_tenant_does_not_find_the_sandbox_of_another(database: Database) -> None:
    await records.admit(database, "acme", "srv", record("sbx_1"), "token")
    assert await records.find(database, "other", "sbx_1") is None
    assert not await records.end(database, "other", "sbx_1", "closed")


async def test_a_postgresql_that_is_not_there_is_named_when_a_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fumehood.server.storage.postgres._OPEN_SECONDS", 0.5)
    database = open_database(f"postgresql://owner@/hood?host={tmp_path}")
    try:
        with pytest.raises(StorageError, match=r"could not be reached in 0\.5 s"):
            await database.prepare()
    finally:
        await database.close()


async def test_a_database_without_an_encoding_is_not_used(postgres: PostgresServer) -> None:
    how = "TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
    postgres.execute(f"CREATE DATABASE bytes {how}", "postgres")
    database = open_database(postgres.url("bytes"))
    try:
        with pytest.raises(StorageError, match="encoding SQL_ASCII; make one with ENCODING 'UTF8'"):
            await database.prepare()
    finally:
        await database.close()


async def test_tables_of_another_version_are_not_used(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "server.db")
    await database.prepare()
    await database.prepare()
    async with database.transaction(EVERYTHING) as transaction:
        await transaction.execute("UPDATE facts SET value = '99'")
    with pytest.raises(StorageError, match="version 99"):
        await database.prepare()
    await database.close()


async def test_a_second_server_cannot_use_the_same_file(tmp_path: Path) -> None:
    first = SqliteDatabase(tmp_path / "server.db")
    with pytest.raises(StorageError, match="another server uses"):
        SqliteDatabase(tmp_path / "server.db")
    await first.close()
    await SqliteDatabase(tmp_path / "server.db").close()


# PostgreSQL alone: what keeps tenants apart when a statement forgets to.


async def _fill(database: Database) -> None:
    for tenant in ("acme", "other"):
        await create_tenant(database, tenant, "me")
        await create_key(database, tenant, "k", [Scope.RUN])


async def _insert(database: Database, tenant: str, foreign: str) -> None:
    async with database.transaction(tenant) as transaction:
        await transaction.execute(INSERT, foreign, "runs", 1000, tenant)


async def test_a_statement_without_a_condition_finds_rows_of_the_own_tenant_alone(postgres: PostgresServer) -> None:
    url = postgres.create_database()
    database = open_database(url)
    await database.prepare()
    await _fill(database)

    async def tenants(table: str) -> set[object]:
        async with database.transaction("acme") as transaction:
            return {row["tenant"] for row in await transaction.rows(f"SELECT tenant FROM {table}")}

    assert await tenants("keys") == await tenants("policies") == {"acme"}
    async with database.transaction("acme") as transaction:
        assert await transaction.execute("DELETE FROM keys") == 1
        assert await transaction.execute("UPDATE policies SET author = 'x' WHERE tenant = ?", "other") == 0
    with pytest.raises(StorageError, match="row-level security"):
        await _insert(database, "acme", "other")
    # Without the policy the same statement finds them all, so it is the policy that the test has seen.
    name = url.partition("@/")[2].partition("?")[0]
    postgres.execute("DROP POLICY of_tenant ON policies; ALTER TABLE policies DISABLE ROW LEVEL SECURITY", name)
    assert await tenants("policies") == {"acme", "other"}
    with pytest.raises(StorageError, match="policies has no row-level security"):
        await database.prepare()
    await database.close()


async def test_a_database_that_is_away_is_an_error_and_back_is_no_trouble() -> None:
    with running() as server:
        database = open_database(server.create_database())
        await database.prepare()
        await create_tenant(database, "acme", "me")
        server.stop()
        with pytest.raises(StorageError):
            await list_tenants(database)
        server.start()
        # Connections of before are broken, and are found out one by one.
        found: list[TenantRecord] = []
        for _ in range(20):
            try:
                found = await list_tenants(database)
                break
            except StorageError:
                continue
        assert [tenant.name for tenant in found] == ["acme"]
        await database.close()


@pytest.mark.parametrize("name", ["a\0b", "\0", "a\ud800"])
async def test_text_that_no_database_takes_is_the_clients_mistake(database: Database, name: str) -> None:
    with pytest.raises(UsageError, match="Unicode"):
        await find_policy(database, "acme", name)
    assert await find_policy(database, "acme", "none") is None
