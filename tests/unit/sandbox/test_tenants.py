"""Sandboxes of two tenants with one policy: what they share is the policy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import sampling

from fumehood import AsyncSandbox, Policy
from fumehood.audit import AuditLog, Query, Record, Trail
from fumehood.backends.native.cgroups import CellCgroups, find_hierarchies, tenant_hierarchies
from fumehood.environments import EnvironmentStore
from fumehood.errors import DeniedError, UsageError
from fumehood.policy.secret import GivenSecrets, MissingValueError
from fumehood.sandbox.async_sandbox import open_named
from fumehood.snapshots import SnapshotStore
from fumehood.tenant import LOCAL, Tenant
from fumehood.tools import Toolbox

pytestmark = pytest.mark.anyio
POLICY = Policy(name="tenants")
# The hash seed and the address layout are those of the interpreter that a run is forked of.
WHO = "print(hash('x'), id(type))"


@pytest.fixture
def tenants(tmp_path: Path) -> tuple[Tenant, Tenant]:
    return Tenant("acme", tmp_path / "acme"), Tenant("bolt", tmp_path / "bolt")


def records(tenant: Tenant) -> list[Record]:
    assert tenant.folder is not None
    found = AuditLog.at(tenant.folder / "audit").find(Query())
    return [record for record in found if not record.kind.startswith("log.")]


async def interpreter(tenant: Tenant) -> str:
    async with AsyncSandbox(POLICY, tenant=tenant) as box:
        return (await box.run(WHO)).check().stdout


async def test_no_interpreter_serves_two_tenants(tenants: tuple[Tenant, Tenant]) -> None:
    async with AsyncExitStack() as stack:  # open, so that no cell ends meanwhile
        for tenant in (*tenants, LOCAL):
            await stack.enter_async_context(AsyncSandbox(POLICY, tenant=tenant))
        first = [await interpreter(tenant) for tenant in (*tenants, LOCAL)]
        again = [await interpreter(tenant) for tenant in (*tenants, LOCAL)]
    assert first == again, "cells are warm, so that a shared one would have been used"
    assert len({value for line in first for value in line.split()}) == 6


def test_a_tenant_has_a_cgroup_with_its_limits_and_leaves_none(tmp_path: Path) -> None:
    hierarchies = find_hierarchies()
    bolt = Tenant("bolt", tmp_path / "bolt", memory_bytes=2**30, cpu_weight=50)
    cgroups = CellCgroups(hierarchies, 987_001, bolt)
    cgroups.make(None)
    try:
        for hierarchy, folder in zip(tenant_hierarchies(hierarchies, bolt), cgroups.folders, strict=True):
            assert folder.parent == hierarchy.parent
            assert (folder.parent.parent.name, folder.parent.name) == ("fumehood", "bolt")
            limits = {"memory.max": "1073741824", "memory.limit_in_bytes": "1073741824"}
            shares = {"cpu.weight": "50", "cpu.shares": "512"}
            for name, value in {**limits, **shares}.items():
                if (folder.parent / name).exists():
                    assert (folder.parent / name).read_text().strip() == value
    finally:
        cgroups.remove()
    assert not any(folder.exists() for folder in cgroups.folders)


def test_several_may_set_the_limits_of_one_tenant_at_once(tmp_path: Path) -> None:
    """A server and workers of one host, say: the kernel refuses a limit that does not go with another's."""
    bolt = Tenant("bolt", tmp_path / "bolt", memory_bytes=2**30)

    def make_often(number: int) -> None:
        for _ in range(sampling.amount(40, whole=200)):
            cgroups = CellCgroups(find_hierarchies(), number, bolt)
            cgroups.make(None)
            cgroups.remove()

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(make_often, 987_100 + number) for number in range(4)]:
            done.result()


async def test_each_tenant_has_its_own_chain_of_records(tenants: tuple[Tenant, Tenant], tmp_path: Path) -> None:
    for tenant in tenants:
        async with AsyncSandbox(POLICY, tenant=tenant) as box:
            assert box.trail.tenant == tenant.name
    for tenant in tenants:
        assert {record.parse()["tenant"] for record in records(tenant)} == {tenant.name}
    with pytest.raises(UsageError, match="this trail is of tenant bolt, and the sandbox is of acme"):
        async with AsyncSandbox(POLICY, audit=Trail(AuditLog.at(tmp_path / "log"), tenant="bolt"), tenant=tenants[0]):
            pass


async def test_snapshots_names_and_environments_are_the_tenants_own(tenants: tuple[Tenant, Tenant]) -> None:
    acme, bolt = tenants
    async with AsyncSandbox(POLICY, tenant=acme) as box:
        await box.files.write("secret.txt", "of acme")
        made = await box.snapshot("state")
        (fork,) = await box.fork()
    async with fork as copy:
        assert copy.trail.tenant == "acme"
    for wanted in ("state", made.id, made):
        with pytest.raises(Exception, match=r"there is no snapshot|is damaged: its manifest is gone"):
            async with AsyncSandbox(POLICY, tenant=bolt, snapshot=wanted):
                pass
    async with AsyncSandbox(POLICY, tenant=acme, snapshot=made) as box:
        assert (await box.run("print(open('secret.txt').read())")).stdout == "of acme\n"
    for tenant in tenants:
        make = lambda policy, tenant=tenant: AsyncSandbox(policy, tenant=tenant)  # noqa: E731
        async with open_named(make, tenant, "build", POLICY, create=True, wait=False) as box:
            assert box.trail.tenant == tenant.name
    assert [len(SnapshotStore.open_for(each).sandboxes()) for each in tenants] == [1, 1]
    EnvironmentStore.open_for(acme)
    assert [(each.folder or Path()).joinpath("environments").exists() for each in tenants] == [True, False]


async def test_no_policy_of_a_tenant_opens_with_a_secret_of_the_server(
    tenants: tuple[Tenant, Tenant], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_KEY", "the-key-of-the-server")
    secret = {"name": "KEY", "from_env": "SERVER_KEY", "inject": {"host": "evil.example"}}
    policy = Policy(network={"allow": [{"host": "evil.example", "ports": [443]}]}, secrets=[secret])
    with pytest.raises(MissingValueError, match="SERVER_KEY is not set"):
        async with AsyncSandbox(policy, tenant=tenants[0]):
            pass
    with pytest.raises(DeniedError, match=r"docker\.host"):
        async with AsyncSandbox(Policy(docker={"host": "tcp://10.0.0.1:2375"}), tenant=tenants[0]):
            pass
    assert [record.kind for record in records(tenants[0])] == ["sandbox.refused", "sandbox.refused"]
    given = Tenant("acme", tenants[0].folder, GivenSecrets({"SERVER_KEY": "the-key-of-acme"}))
    async with AsyncSandbox(policy, tenant=given) as box:
        # What the tenant sends is compared with its own value alone, and a server's variable is not confirmed.
        assert (await box.run("pass", env={"GUESS": "the-key-of-the-server"})).ok
        with pytest.raises(DeniedError, match="has the value of the secret KEY"):
            await box.run("pass", env={"GUESS": "the-key-of-acme"})
        private = {"allow": [{"host": "127.0.0.1", "ports": [8440], "private": True}]}
        with pytest.raises(DeniedError, match=r"network\.allow: private"):
            await box.change_policy(policy.override({"network": private, "secrets": []}))
        # A model's text is searched for the tenant's value and not for the server's.
        shown = Toolbox(box)._filters.sift("the-key-of-the-server the-key-of-acme").text
        assert shown.startswith("the-key-of-the-server")
        assert "acme" not in shown


async def test_a_tenant_is_no_part_of_a_policy(tenants: tuple[Tenant, Tenant]) -> None:
    digests = set[str]()
    for tenant in (*tenants, LOCAL):
        async with AsyncSandbox(POLICY, tenant=tenant) as box:
            digests.add((await box.run("pass")).policy_digest)
    assert digests == {POLICY.digest}
