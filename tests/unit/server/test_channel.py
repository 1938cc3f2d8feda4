"""The channel: a sandbox at a server, through connections that break and with clients that lie."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.server.hosting import Hosted, hosted

from fumehood import DeniedError, Finished, FumehoodError, LostError, Policy, QuotaError, Stdout, UsageError
from fumehood.audit import Query
from fumehood.remote import calls
from fumehood.remote.policies import pack_policy
from fumehood.remote.sandbox import RemoteSandbox
from fumehood.remote.server import Server, connect
from fumehood.results import Cause
from fumehood.server.identity.keys import create_key, list_keys, revoke_key
from fumehood.server.identity.principals import OF_TENANTS, Scope
from fumehood.server.lifetime import look_after
from fumehood.server.sandboxes import records
from fumehood.server.tenants.quotas import Quota, set_limit
from fumehood.server.tenants.tenants import create_tenant

pytestmark = pytest.mark.anyio

_OPEN = Policy(filesystem={"outputs": ["out/**"]})


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Hosted]:
    async with hosted(tmp_path / "state", strict=False, sandboxes={"linger": "5s"}) as running:
        for tenant in ("acme", "umbrella"):
            await create_tenant(running.server.database, tenant, "test")
        yield running


async def key_of(host: Hosted, tenant: str = "acme", scopes: frozenset[Scope] = frozenset(OF_TENANTS)) -> str:
    return (await create_key(host.server.database, tenant, "test", scopes))[0]


@pytest.fixture
async def server(host: Hosted) -> Server:
    return connect(host.address, await key_of(host))


async def test_a_key_from_a_file_may_end_with_a_newline(host: Hosted) -> None:
    assert (await connect(host.address, f"{await key_of(host)}\n").run("print(42)")).stdout == "42\n"


async def test_an_address_with_a_path_is_not_taken_for_a_key_that_is_refused(host: Hosted) -> None:
    with pytest.raises(UsageError, match=r"/v1 is not the address of a Fumehood server"):
        await connect(f"{host.address}/v1", await key_of(host)).run("print(42)")


class Wire:
    """A connection to the server that can be cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self.is_down = False

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        if self.is_down:
            writer.transport.abort()
            return
        theirs, ours = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(ours)
        with suppress(OSError):
            await asyncio.gather(_copy(reader, ours), _copy(theirs, writer))

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def wired(host: Hosted) -> AsyncIterator[tuple[Wire, Server]]:
    wire = Wire(int(host.address.rpartition(":")[2]))
    proxy = await asyncio.start_server(wire.carry, "127.0.0.1", 0)
    try:
        port = proxy.sockets[0].getsockname()[1]
        yield wire, connect(f"http://127.0.0.1:{port}", await key_of(host))
    finally:
        proxy.close()
        wire.cut()


async def test_a_run_goes_on_over_a_connection_that_was_cut(host: Hosted) -> None:
    async with wired(host) as (wire, server), server.sandbox(_OPEN) as box:
        run = asyncio.ensure_future(box.run("for n in range(3): print(input())", stdin="a\nb\nc\n"))
        seen: list[bytes] = []
        async for event in box.stream("for n in range(300): print(n)"):
            if isinstance(event, Stdout):
                seen.append(event.data)
                if len(seen) in (1, 3):
                    wire.cut()
        assert b"".join(seen).split() == [b"%d" % n for n in range(300)]
        assert (await run).stdout == "a\nb\nc\n"


async def test_a_client_that_does_not_come_back_loses_its_sandbox_and_knows_it(host: Hosted) -> None:
    async with wired(host) as (wire, server), server.sandbox(_OPEN) as box:
        waiting = asyncio.ensure_future(box.run("import time; time.sleep(20)"))
        await box.run("pass")
        opened = await host.server.registry.find("acme", box.id)
        wire.cut()
        await opened.close("abandoned")
        result = await waiting
        assert (result.cause, result.ok) == (Cause.LOST, False)
        assert "not done again" in result.detail
        with pytest.raises(LostError):
            await box.run("pass")
        record = await records.find(host.server.database, "acme", box.id)
        assert record is not None
        assert record.cause == "abandoned"


@pytest.mark.parametrize("what", ["token", "tenant", "id", "key"])
async def test_nobody_comes_back_to_a_sandbox_that_is_not_theirs(host: Hosted, server: Server, what: str) -> None:
    """Whatever is wrong, the answer is the same."""
    stranger = connect(host.address, await key_of(host, "acme" if what == "key" else "umbrella"))
    async with server.sandbox(_OPEN) as box:
        opened = box._connection.opened
        thief = (stranger if what in ("tenant", "key") else server).sandbox(_OPEN)._connection
        wrong = {"token": {"token": "x"}, "id": {"sandbox": "sbx_00"}}.get(what, {})
        thief._opened = replace(opened, **wrong)
        with pytest.raises(FumehoodError, match=r"^there is no such sandbox$"):
            await thief._greet(await thief._dial(), thief._attachment())
        assert (await box.run("print(1)")).ok


@pytest.mark.parametrize(
    "request_",
    [
        {"do": "read", "path": "secret", "limit": 1000},
        {"do": "read", "path": "/etc/passwd", "limit": 1000},
        {"do": "read", "path": "out/../secret", "limit": 1000},
        {"do": "digest", "path": "secret", "limit": 1000, "links": False},
        {"do": "list", "path": "", "limit": 10, "most_digested": 1000},
        {"do": "read", "path": 7, "limit": 1000},
        {"do": "write", "path": "/proc/self/mem", "last": True, "sha256": ""},
        {"do": "unknown", "path": "x"},
    ],
    ids=lambda request: f"{request['do']} {request['path']}",
)
async def test_a_client_of_its_own_making_reads_nothing_that_the_policy_keeps(
    server: Server, request_: dict[str, Any]
) -> None:
    async with server.sandbox(_OPEN) as box:
        await box.files.write("secret", "the content")
        async with calls.begin(box._connection.conversations, {"do": "files"}) as conversation:
            await calls.next_answer(conversation)
            await conversation.send({"file": request_})
            with pytest.raises((DeniedError, UsageError)):
                await calls.next_answer(conversation)
        assert (await box.run("print(1)")).ok


async def test_a_call_that_is_left_before_it_began_is_over(server: Server) -> None:
    async with server.sandbox() as box:
        for _ in range(20):
            async with asyncio.timeout(10), calls.begin(box._connection.conversations, {"do": "run"}):
                pass


async def test_what_leaves_and_what_is_refused_is_in_the_tenants_log(host: Hosted, server: Server) -> None:
    async with server.sandbox(_OPEN) as box:
        await box.files.write("out/a", "content")
        assert await box.files.read("out/a") == b"content"
        with pytest.raises(DeniedError):
            await box.files.read("b")
        await box.run("print(1)")
    kinds = [record.kind for record in host.server.chains.log_of("acme").find(Query())]
    assert [kind for kind in kinds if kind.startswith("file.")] == ["file.in", "file.out"]
    assert {"sandbox.opened", "run.requested", "run.finished", "sandbox.closed"} <= set(kinds)
    others = [record.kind for record in host.server.chains.log_of("umbrella").find(Query())]
    assert all(kind.startswith("log.") for kind in others)


@pytest.mark.parametrize("scopes", [frozenset[Scope](), frozenset({Scope.RUN})], ids=["none", "run"])
async def test_a_key_has_no_more_than_its_scopes(host: Hosted, scopes: frozenset[Scope]) -> None:
    server = connect(host.address, await key_of(host, scopes=scopes))
    with pytest.raises(FumehoodError, match="scope"):
        async with server.sandbox(_OPEN):
            pass
    if Scope.RUN in scopes:
        async with server.sandbox("closed") as named, server.sandbox() as closed:
            assert (await named.run("print(1)")).ok
            assert closed.policy.digest == Policy(strict=False).digest
            for call in (named.files.write("a", "1"), named.files.list(), named.files.read("a")):
                with pytest.raises(FumehoodError):
                    await call


@pytest.mark.parametrize(
    "policy",
    [
        Policy(filesystem={"mounts": [{"source": "/etc", "target": "/data"}]}),
        Policy(backend="docker", docker={"host": "tcp://127.0.0.1:1"}),
        Policy(filters={"canaries": [{"name": "c", "from_file": "/etc/hostname"}]}),
        Policy(network={"allow": [{"host": "10.99.0.1", "ports": [443], "private": True}]}),
    ],
    ids=["mount", "engine", "file", "private"],
)
async def test_a_document_of_a_tenant_names_nothing_of_the_servers_host(server: Server, policy: Policy) -> None:
    with pytest.raises((DeniedError, UsageError)):
        async with server._sandbox({"policy": pack_policy(policy)}, {}):  # a client that sends no files along
            pass


async def test_a_key_that_is_revoked_ends_what_was_opened_with_it(host: Hosted, server: Server) -> None:
    async with server.sandbox(_OPEN) as box:
        stream = box.stream("import time; print(1, flush=True); time.sleep(30)")
        assert isinstance(await anext(stream), Stdout)
        (key,) = await list_keys(host.server.database, "acme")
        await revoke_key(host.server.database, "acme", key.id)
        await look_after(host.server)
        last = [event async for event in stream][-1]
        assert isinstance(last, Finished)
        assert last.result.cause is Cause.LOST


async def test_runs_at_once_and_processor_time_have_quotas_that_hold(host: Hosted, server: Server) -> None:
    database = host.server.database
    await set_limit(database, "acme", Quota.RUNS, 1, "test")
    async with server.sandbox(_OPEN) as box, server.sandbox(_OPEN) as other:
        async with _started(box):
            with pytest.raises(FumehoodError, match=f"the quota {Quota.RUNS.value} is used up: 1 of 1"):
                await other.run("pass")
        assert (await other.run("pass")).ok
        await set_limit(database, "acme", Quota.CPU, 0.000001, "test")
        await look_after(host.server)
        with pytest.raises(FumehoodError, match=f"the quota {Quota.CPU.value} is used up"):
            await other.run("pass")


@asynccontextmanager
async def _started(box: RemoteSandbox) -> AsyncIterator[None]:
    run = await box.start("input()")
    try:
        yield
    finally:
        await run.kill()


async def test_large_messages_of_all_sandboxes_of_a_tenant_have_one_limit(tmp_path: Path) -> None:
    large, limits = bytes(4 * 1024 * 1024), {"bodies_of_tenant": "6M"}
    async with hosted(tmp_path / "state", strict=False, limits=limits) as host:
        for tenant in ("acme", "umbrella"):
            await create_tenant(host.server.database, tenant, "test")
        ours, others = [connect(host.address, await key_of(host, tenant)) for tenant in ("acme", "umbrella")]
        async with ours.sandbox() as first, ours.sandbox() as second, others.sandbox() as third:
            async with aclosing(first.stream("print(1, flush=True); import time; time.sleep(60)", stdin=large)) as held:
                await anext(held)
                with pytest.raises(QuotaError, match="6M") as refused:
                    await second.run("print(1)", stdin=large)
                assert refused.value.quota == "bodies_of_tenant"
                assert (await second.run("print(1)")).ok
                assert (await third.run("print(1)", stdin=large)).ok
            assert (
                await second.run("import sys; print(len(sys.stdin.read()))", stdin=large)
            ).stdout == f"{len(large)}\n"
        assert host.server.connections.memory_of("acme").take(6 * 1024 * 1024) is None  # all of it was given back


async def test_quotas_of_openings_are_named(host: Hosted, server: Server) -> None:
    await set_limit(host.server.database, "acme", Quota.SANDBOXES, 1, "ada")
    async with server.sandbox(_OPEN):
        with pytest.raises(FumehoodError, match=r"the quota sandboxes is used up: 1 of 1 \(set by ada\)"):
            async with server.sandbox(_OPEN):
                pass
    async with server.sandbox(_OPEN):
        pass
