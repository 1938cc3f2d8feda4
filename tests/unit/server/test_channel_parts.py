"""Ports, forks, named sandboxes and changes of policy at a server: what they give, and whom they refuse."""

from __future__ import annotations

import asyncio
import gzip
import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from unit.server.hosting import Hosted, hosted

from fumehood import DeniedError, FumehoodError, LostError, Policy, QuotaError, SandboxBusyError, UsageError
from fumehood.audit import Query
from fumehood.remote import calls
from fumehood.remote.server import Server, connect
from fumehood.remote.service import HANDLERS
from fumehood.server.identity.keys import create_key
from fumehood.server.identity.principals import OF_TENANTS, Scope
from fumehood.server.lifetime import collect_old
from fumehood.server.sandboxes import records
from fumehood.server.tenants.quotas import Quota, set_limit
from fumehood.server.tenants.tenants import create_tenant

pytestmark = pytest.mark.anyio

NEVER = r"^there is no such sandbox$"
RULES = [{"host": "a.example", "ports": [443]}, {"host": "b.example", "ports": [443]}]
SERVING = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header('Content-Length', '5'); self.end_headers(); self.wfile.write(b'hello')
    def log_message(self, *words): pass
http.server.HTTPServer(('127.0.0.1', 8000), Handler).serve_forever()
"""


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Hosted]:
    async with hosted(tmp_path / "state", strict=False) as running:
        for tenant in ("acme", "umbrella"):
            await create_tenant(running.server.database, tenant, "test")
        yield running


async def server_of(host: Hosted, tenant: str = "acme", *scopes: Scope) -> Server:
    key, _ = await create_key(host.server.database, tenant, "test", scopes or OF_TENANTS)
    return connect(host.address, key)


@pytest.fixture
async def server(host: Hosted) -> Server:
    return await server_of(host)


async def limit(host: Hosted, quota: Quota, value: float) -> None:
    await set_limit(host.server.database, "acme", quota, value, "test")
    host.server.requests.forget("acme")


async def test_a_port_wants_its_token_and_the_server_records_who_had_none(host: Hosted, server: Server) -> None:
    async with server.sandbox(Policy(network={"publish": [8000]})) as box, httpx.AsyncClient() as client:
        await box.start(SERVING)
        port = await box.expose(8000)
        await port.wait_ready()
        assert (await client.get(port.address, headers=dict(port.headers))).text == "hello"
        guessed = [{}, {"X-Fumehood-Token": "x" * 43}, {**port.headers, "Host": "evil.example"}]
        assert [(await client.get(port.address, headers=each)).status_code for each in guessed] == [403] * 3
        await port.close()
        with pytest.raises(httpx.ConnectError):
            await client.get(port.address)
    kinds = [record.kind for record in host.server.chains.log_of("acme").find(Query())]
    assert {"port.exposed", "port.requests", "port.denied", "port.closed"} <= set(kinds)


async def test_a_client_of_its_own_making_publishes_nothing_that_the_policy_does_not(server: Server) -> None:
    async with server.sandbox(Policy(network={"publish": [8000]})) as box:
        for wrong in ({"port": 22, "client_port": 1}, {"port": 8000, "client_port": 0}, {"port": "8000"}):
            with pytest.raises((DeniedError, UsageError)):
                await calls.ask(box._connection.conversations, {"do": "port.open", **wrong})
        for call in ("port.connect", "port.wait", "port.close"):
            with pytest.raises(UsageError, match="no such published port"):
                await calls.ask(box._connection.conversations, {"do": call, "part": 1})


async def test_a_fork_is_for_the_key_that_asked_and_for_one_use(host: Hosted, server: Server) -> None:
    strangers = [await server_of(host), await server_of(host, "umbrella")]
    async with server.sandbox() as box:
        await box.files.write("a", "1")
        (fork,) = await box.fork()
        requested = fork._connection._requested
    for stranger in strangers:
        thief = stranger.sandbox()
        thief._connection._requested = requested
        with pytest.raises(FumehoodError, match=NEVER):
            await thief.__aenter__()
    async with fork:
        assert (await fork.run("print(open('a').read())")).stdout == "1\n"
    with pytest.raises(FumehoodError, match=NEVER):
        await fork.__aenter__()


async def test_forks_that_are_asked_for_at_once_count_together(host: Hosted, server: Server) -> None:
    async with server.sandbox(Policy()) as box:
        done = await asyncio.gather(*(box.fork(100) for _ in range(4)), return_exceptions=True)
    assert sorted(type(each).__name__ for each in done) == ["UsageError", "UsageError", "list", "list"]
    host.server.registry.forks.release_all()


async def test_a_fork_that_is_not_opened_is_kept_for_a_while_and_leaves_nothing(host: Hosted, server: Server) -> None:
    async with server.sandbox() as box:
        await box.files.write("a", "1")
        await box.fork(3)
        with pytest.raises(UsageError, match="at most 256 copies"):
            await box.fork(254)
    host.server.registry.forks.release_all()
    store = await host.server.tenancy.store_of("acme")
    assert list((store.root / "leases").iterdir()) == []


async def test_a_named_sandbox_is_the_tenants_and_in_use_once(host: Hosted, server: Server) -> None:
    async with server.open("work", create=True) as box:
        await box.run("open('n', 'w').write('1')")
        with pytest.raises(SandboxBusyError):
            await server.open("work").__aenter__()
        waiting = asyncio.ensure_future(server.open("work", wait=True).__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()  # the client hangs up
        await asyncio.gather(waiting, return_exceptions=True)
    foreign = await server_of(host, "umbrella")
    with pytest.raises(UsageError, match="there is no sandbox 'work'"):
        await foreign.open("work").__aenter__()
    async with server.open("work") as box:
        assert (await box.run("print(open('n').read())")).stdout == "1\n"
    assert await records.list_open(host.server.database, "acme") == []


async def test_a_key_without_policies_uses_policies_of_the_catalogue_alone(host: Hosted, server: Server) -> None:
    async with server.open("own", Policy(resources={"processes": 17}), create=True):
        pass
    async with server.open("known", "closed", create=True):
        pass
    plain = await server_of(host, "acme", Scope.RUN, Scope.FILES)
    async with plain.open("known") as box:
        assert (await box.run("print(1)")).ok
    with pytest.raises(DeniedError, match="not in the catalogue as it is now"):
        await plain.open("own").__aenter__()
    async with plain.open("own", "closed", once=True) as box:
        assert (await box.run("print(1)")).ok
    with pytest.raises(FumehoodError, match="scope 'policies'"):
        await plain.open("own", Policy(resources={"processes": 18})).__aenter__()
    named = plain.named
    with pytest.raises(DeniedError, match="'policies'"):
        await asyncio.to_thread(named.export, "own", "-", lambda archive: None, everything=True)


async def test_rules_are_taken_away_by_every_key_and_added_by_some(host: Hosted, server: Server) -> None:
    policy = "version: 1\nnetwork:\n  allow:\n" + "".join(f"  - {{host: {r['host']}, ports: [443]}}\n" for r in RULES)
    client = await host.key("acme", OF_TENANTS)
    assert (await client.put("/policies/two", json={"text": policy})).is_success
    plain = await server_of(host, "acme", Scope.RUN)
    async with plain.sandbox("two") as box:
        for wider in ([*RULES, {"host": "c.example", "ports": [443]}], [{"host": "*.example", "ports": [443]}]):
            with pytest.raises(DeniedError, match=r"network\.allow: the rule for"):
                await box.change_policy(Policy(name="two", network={"allow": wider}, strict=False))
        await box.change_policy(Policy(name="two", network={"allow": RULES[:1]}, strict=False))
        assert [rule.host for rule in box.policy.network.allow] == ["a.example"]
        await box.change_policy("closed")
        with pytest.raises(DeniedError):
            await box.change_policy("two")
    async with server.sandbox("two") as box:
        await box.change_policy(Policy(network={"allow": [{"host": "c.example", "ports": [443]}]}))
        assert [rule.host for rule in box.policy.network.allow] == ["c.example"]


async def test_calls_of_the_channel_are_requests_of_the_tenant(host: Hosted, server: Server) -> None:
    async with server.sandbox() as box:
        await limit(host, Quota.REQUESTS, 0.01)
        await box.run("1")  # the last one that there was room for
        with pytest.raises(QuotaError, match="requests_per_second is used up") as refused:
            await asyncio.gather(box.run("1"), box.run("1"))
        assert (refused.value.quota, refused.value.most) == ("requests_per_second", 0.01)
        assert refused.value.resets is not None


async def test_every_call_without_its_parts_is_refused_and_the_sandbox_goes_on(host: Hosted, server: Server) -> None:
    await limit(host, Quota.REQUESTS, 1000)
    async with server.sandbox() as box:
        for call in sorted(HANDLERS.keys() - {"close", "files", "session.open"}):
            answer = calls.ask(box._connection.conversations, {"do": call, "part": 99, "packages": 7, "name": []})
            with pytest.raises((UsageError, DeniedError)):
                await answer
        assert (await box.run("print(1)")).ok


def archive(*entries: tuple[tarfile.TarInfo, bytes]) -> io.BufferedReader:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for info, data in entries:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return io.BufferedReader(io.BytesIO(content.getvalue()))  # type: ignore[arg-type]


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info, b""


async def test_archives_come_in_and_go_out_as_the_policy_says(server: Server) -> None:
    named, policy = server.named, Policy(filesystem={"outputs": ["out/**"]})
    content = archive((tarfile.TarInfo("out/a"), b"1"), (tarfile.TarInfo("kept"), b"2"))
    record = await asyncio.to_thread(named.create_from_archive, "work", policy, content, "test.tar")
    assert (record.files, record.policy_digest) == (2, policy.digest)
    target = io.BytesIO()
    await asyncio.to_thread(named.export, "work", "-", lambda tar: tar.write(target), everything=False)
    with tarfile.open(fileobj=io.BytesIO(target.getvalue())) as tar:
        assert tar.getnames() == ["out", "out/a"] or tar.getnames() == ["out/a"]
    (copy,) = await asyncio.to_thread(named.fork, "work", ["copy"])
    made = await asyncio.to_thread(named.snapshot, "copy", "base")
    assert (copy.snapshot, [each.name for each in await asyncio.to_thread(named.snapshots)]) == (made.id, ["base"])
    await asyncio.to_thread(named.remove, "copy")
    await asyncio.to_thread(named.remove_snapshot, "base")
    assert [each.name for each in await asyncio.to_thread(named.sandboxes)] == ["work"]
    assert {entry.path for entry in await asyncio.to_thread(named.entries, "work")} >= {"out/a", "kept"}


async def test_an_archive_that_leads_out_or_is_too_large_leaves_nothing(host: Hosted, server: Server) -> None:
    """A bomb is refused while it is written, long before the disk is full of it."""
    named, store = server.named, await host.server.tenancy.store_of("acme")
    await limit(host, Quota.DISK, 20e6)
    bomb = gzip.compress(archive((tarfile.TarInfo("zeros"), bytes(200_000_000))).read(), 1)
    huge = Policy(filesystem={"workspace": {"size": "1T"}})
    attacks = [
        (archive(link("a", "/etc/passwd")), UsageError, "leads out|link"),
        (archive((tarfile.TarInfo("../up"), b"1")), UsageError, "not taken"),
        (io.BufferedReader(io.BytesIO(bomb)), QuotaError, "disk is used up"),  # type: ignore[arg-type]
    ]
    for content, kind, words in attacks:
        with pytest.raises(kind, match=words):
            await asyncio.to_thread(named.create_from_archive, "work", huge, content, "attack")
    assert [path for path in store.root.rglob("*") if path.is_file() and path.name not in ("lock", "commit")] == []
    await limit(host, Quota.NAMED, 1)
    await asyncio.to_thread(named.create_empty, "one", Policy())
    with pytest.raises(QuotaError, match="named_sandboxes is used up: 1 of 1"):
        await asyncio.to_thread(named.create_empty, "two", Policy())


async def test_an_upload_that_breaks_off_is_not_a_smaller_archive(host: Hosted) -> None:
    whole = archive((tarfile.TarInfo("a"), b"1" * 512), (tarfile.TarInfo("b"), b"2")).read()
    client = await host.key("acme", OF_TENANTS)
    port = int(host.address.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "PUT /v1/named-sandboxes/work/archive HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    writer.write(f"{head}Authorization: {client.headers['authorization']}\r\n\r\n400\r\n".encode())
    writer.write(whole[:1024] + b"\r\n")  # the first entry, complete
    await writer.drain()
    writer.close()
    for _ in range(200):
        answer = await client.put("/named-sandboxes/next/archive", content=whole)
        if answer.status_code != 409:
            break  # the first one is over
    assert answer.status_code == 200, answer.text
    assert [each["name"] for each in (await client.get("/named-sandboxes")).json()] == ["next"]


async def test_what_was_not_used_for_long_is_removed_and_a_tenants_name_can_be_had_again(
    host: Hosted, server: Server
) -> None:
    named = server.named
    await asyncio.to_thread(named.create_empty, "old", Policy())
    store = await host.server.tenancy.store_of("acme")
    store.update(store.find("old").model_copy(update={"used": 1.0}))
    await asyncio.to_thread(named.create_empty, "new", Policy())
    await collect_old(host.server)
    assert [each.name for each in await asyncio.to_thread(named.sandboxes)] == ["new"]
    operator = await host.key("umbrella", [Scope.OPERATE])
    assert (await operator.delete("/tenants/acme")).status_code == 204
    assert (await operator.post("/tenants", json={"name": "acme"})).status_code == 201
    assert await asyncio.to_thread((await server_of(host)).named.sandboxes) == []


async def test_a_sandbox_that_is_gone_is_lost_in_every_call(host: Hosted, server: Server) -> None:
    async with server.sandbox(Policy(network={"publish": [8000]})) as box:
        port = await box.expose(8000)
        await (await host.server.registry.find("acme", box.id)).close("expired")
        for call in (box.fork(), box.expose(8000), box.snapshot(), box.change_policy("closed"), port.wait_ready()):
            with pytest.raises(LostError):
                await call
