"""Members of a cluster at a real NATS server: what each may say and hear, how one joins, and how one is removed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator

import cluster_nats
import pytest
from cluster_nats import NatsServer
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error
from nats.js.api import StreamConfig

from fumehood.cluster import subjects
from fumehood.cluster.accounts import push_accounts
from fumehood.cluster.authority import CLUSTER
from fumehood.cluster.connection import close, connect, flush, jetstream, subscribe
from fumehood.cluster.join import NewcomerAdmission, join_cluster, make_token
from fumehood.cluster.permissions import CLAIMS_UPDATE, Permissions
from fumehood.errors import DeniedError, LostError

pytestmark = pytest.mark.anyio
_SECONDS = 10
ROUNDS = 100


@pytest.fixture(scope="module")
def nats() -> Iterator[NatsServer]:
    with cluster_nats.running() as running:
        yield running


class Ear:
    """What has come, in order."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._news = asyncio.Event()

    async def take(self, message: Msg) -> None:
        self.heard.append(message.subject)
        self._news.set()

    async def wait_for(self, subject: str) -> None:
        async with asyncio.timeout(_SECONDS):
            while subject not in self.heard:
                self._news.clear()
                await self._news.wait()


async def test_what_is_subscribed_to_is_heard_from_a_flush_on(nats: NatsServer) -> None:
    """The client of NATS writes later than it says: with its own `flush`, one in sixteen is not heard."""
    server = await connect(nats.authority.make_member("flush-server", "server"))
    worker = await connect(nats.authority.make_member("flush-w1", "worker"))
    ear = Ear()
    try:
        for number in range(ROUNDS):
            own = subjects.up("flush-w1", "flush-server", "i", str(number))
            await subscribe(worker, own, ear.take)
            await flush(worker)
            await server.publish(own, b"")
            await ear.wait_for(own)
    finally:
        await close(worker)
        await close(server)


OF_OTHERS = (
    "fh.up.w2.server.i.c",
    "fh.down.server.w2.i.c",
    "fh.order.w2",
    "fh.join.abc",
    "$KV.workers.w2",
    "_INBOX.server.x",
    "_INBOX.w2.x",
)


async def test_a_stolen_worker_credential_hears_its_own_messages_alone(nats: NatsServer) -> None:
    """A server says what it may to everyone; the thief has asked for all of it."""
    server = await connect(nats.authority.make_member("hears-server", "server"))
    thief = await connect(nats.authority.make_member("hears-w1", "worker"))
    ear = Ear()
    try:
        for subject in (">", "fh.>", "fh.up.>", "fh.order.*", "$KV.>", "_INBOX.>", "fh.up.hears-w2.*.*.*"):
            await subscribe(thief, subject, ear.take)
        own = subjects.up("hears-w1", "hears-server", "i", "c")
        await subscribe(thief, subjects.up("hears-w1", "*", "*", "*"), ear.take)
        await flush(thief)
        await server.publish(subjects.up("hears-w2", "hears-server", "i", "c"), b"secret")
        await server.publish(subjects.order("hears-w2"), b"{}")
        await server.publish(own, b"for the thief")
        await ear.wait_for(own)
        assert ear.heard == [own]
    finally:
        await close(thief)
        await close(server)


async def test_a_stolen_worker_credential_speaks_for_itself_alone(nats: NatsServer) -> None:
    server = await connect(nats.authority.make_member("speaks-server", "server"))
    thief = await connect(nats.authority.make_member("speaks-w1", "worker"))
    ear = Ear()
    try:
        await subscribe(server, subjects.down("speaks-server", "*", "*", "*"), ear.take)
        await subscribe(server, subjects.entry("*"), ear.take)
        await subscribe(server, subjects.join("*"), ear.take)
        await flush(server)
        for subject in (*OF_OTHERS, "fh.down.speaks-server.w2.i.c", "fh.beat.speaks-server", "$JS.API.STREAM.LIST"):
            await thief.publish(subject, b"forged")
        await thief.publish(subjects.down("speaks-server", "speaks-w1", "i", "c"), b"its own")
        await ear.wait_for(subjects.down("speaks-server", "speaks-w1", "i", "c"))
        assert ear.heard == [subjects.down("speaks-server", "speaks-w1", "i", "c")]
    finally:
        await close(thief)
        await close(server)


async def test_a_stolen_worker_credential_has_jetstream_speak_for_no_other(nats: NatsServer) -> None:
    """JetStream sends the content of an entry wherever its reader says, with rights that the reader does not have."""
    server = await connect(nats.authority.make_member("echo-server", "server"))
    other = await connect(nats.authority.make_member("echo-w2", "worker"))
    thief = await connect(nats.authority.make_member("echo-w1", "worker"))
    orders, reports, plain = Ear(), Ear(), Ear()
    try:
        made = StreamConfig(name=subjects.WORKERS_STREAM, subjects=[subjects.entry("*")], allow_direct=True)
        await jetstream(server).add_stream(made)
        report = subjects.report("echo-server", "echo-w2", "i")
        await subscribe(other, subjects.order("echo-w2"), orders.take)
        await other.subscribe(subjects.order("echo-w2"), cb=plain.take)
        await subscribe(server, report, reports.take)
        await flush(other)
        await flush(server)
        await jetstream(thief).publish(subjects.entry("echo-w1"), b'{"drain": true}')
        read = f"$JS.API.DIRECT.GET.{subjects.WORKERS_STREAM}.{subjects.entry('echo-w1')}"
        for target in (subjects.order("echo-w2"), report):
            await thief.publish(read, b"", reply=target)
        await plain.wait_for(subjects.order("echo-w2"))  # it does arrive
        await server.publish(subjects.order("echo-w2"), b"of a server")
        await orders.wait_for(subjects.order("echo-w2"))
        assert orders.heard == [subjects.order("echo-w2")]
        assert reports.heard == []
    finally:
        for client in (thief, other, server):
            await close(client)


async def test_without_a_certificate_of_the_cluster_nothing_is_said(nats: NatsServer) -> None:
    """TLS asks for it, before a token could be shown."""
    context = ssl.create_default_context(cadata=nats.authority.certificates.pem)
    client = Client()
    with pytest.raises((OSError, ssl.SSLError, Exception)) as caught:
        await client.connect(list(nats.authority.urls), tls=context, tls_hostname="127.0.0.1", allow_reconnect=False)
    assert "certificate" in str(caught.value).lower() or isinstance(caught.value, OSError | asyncio.TimeoutError)
    assert not client.is_connected


async def test_a_certificate_without_a_user_of_nats_is_refused(nats: NatsServer) -> None:
    from dataclasses import replace

    known = nats.authority.make_member("half", "worker")
    with pytest.raises(LostError, match="Authorization"):
        await connect(replace(known, user=nats.authority.make_member("half-2", "worker").user))


async def test_a_token_admits_one_machine_once(nats: NatsServer) -> None:
    server = await connect(nats.authority.make_member("admits", "server"))
    try:
        await subscribe(server, subjects.join("*"), NewcomerAdmission(nats.authority).answer)
        await flush(server)
        token = make_token(nats.authority, "joined", "worker", 60, ["acme"])
        both = await asyncio.gather(join_cluster(token), join_cluster(token), return_exceptions=True)
        [refused] = [each for each in both if isinstance(each, DeniedError)]
        [credentials] = [each for each in both if not isinstance(each, BaseException)]
        assert "used before" in str(refused)
        assert credentials.name == "joined"
        client = await connect(credentials)
        await close(client)
    finally:
        await close(server)


async def test_a_newcomer_can_ask_for_credentials_and_nothing_else(nats: NatsServer) -> None:
    from fumehood.cluster.join import read_token

    server = await connect(nats.authority.make_member("quiet", "server"))
    newcomer = await connect(read_token(make_token(nats.authority, "newcomer", "worker", 60)))
    ear, seen = Ear(), Ear()
    try:
        await subscribe(newcomer, "fh.>", ear.take)
        await subscribe(server, subjects.entry("*"), seen.take)
        await subscribe(server, subjects.join("*"), seen.take)
        await flush(server)
        await newcomer.publish(subjects.entry("newcomer"), b"{}")
        await newcomer.publish(subjects.join("join-other"), b"{}")
        await newcomer.publish(subjects.join(str(newcomer.options["name"])), b"{}")
        await seen.wait_for(subjects.join(str(newcomer.options["name"])))
        await server.publish(subjects.beat("quiet"), b"x")
        await flush(server)
        await flush(newcomer)
        assert (ear.heard, len(seen.heard)) == ([], 1)
    finally:
        await close(newcomer)
        await close(server)


async def test_a_newcomer_has_its_answer_sent_to_itself_alone(nats: NatsServer) -> None:
    """A server may answer wherever a question says: at a worker's entry, the answer would end that worker's lease."""
    from fumehood.cluster.join import read_token

    server = await connect(nats.authority.make_member("answers", "server"))
    victim = await connect(nats.authority.make_member("victim", "worker"))
    newcomer = await connect(read_token(make_token(nats.authority, "misled", "worker", 60)))
    name, seen = str(newcomer.options["name"]), Ear()
    try:
        await subscribe(server, subjects.join("*"), NewcomerAdmission(nats.authority).answer)
        await subscribe(server, subjects.entry("*"), seen.take)
        await subscribe(victim, subjects.order("victim"), seen.take)
        await subscribe(newcomer, f"{subjects.inbox(name)}.>", seen.take)
        for client in (server, victim, newcomer):
            await flush(client)
        own = f"{subjects.inbox(name)}.x"
        for reply in (subjects.entry("victim"), subjects.order("victim"), own):
            await newcomer.publish(subjects.join(name), b"{}", reply=reply)
        await seen.wait_for(own)
        await flush(server)
        await flush(victim)
        assert seen.heard == [own]
    finally:
        for client in (newcomer, victim, server):
            await close(client)


async def test_a_removed_member_is_cut_off_and_does_not_come_back(nats: NatsServer) -> None:
    credentials = nats.authority.make_member("removed", "worker")
    gone = asyncio.Event()

    async def note() -> None:
        gone.set()

    client = await connect(credentials, disconnected=note)
    try:
        await push_accounts(nats.authority, nats.authority.revoke("removed"))
        async with asyncio.timeout(_SECONDS):
            await gone.wait()
        with pytest.raises(LostError, match=r"uthorization|uthentication|revoked"):
            await connect(credentials)
    finally:
        await close(client)


async def test_a_server_cannot_bring_back_a_removed_member(nats: NatsServer) -> None:
    """With an account's token from before, which the operator has signed."""
    server, credentials = nats.authority.make_member("rogue", "server"), nats.authority.make_member("former", "worker")
    before = nats.authority.account_token(CLUSTER)
    await push_accounts(nats.authority, nats.authority.revoke("former"))
    observer = await connect(server, is_observer=True)
    try:
        with pytest.raises(Error):
            await observer.request(CLAIMS_UPDATE, before.encode(), timeout=0.5)
        with pytest.raises(LostError):
            await connect(credentials)
    finally:
        await close(observer)


async def test_accounts_of_tenants_do_not_hear_each_other(nats: NatsServer) -> None:
    accounts = [nats.authority.ensure_account(tenant) for tenant in ("acme", "globex")]
    await push_accounts(nats.authority, accounts)
    allowed = Permissions(("fh.>",), ("fh.>",))
    one, other = [await connect(nats.authority.make_runtime(f"of-{account}", account, allowed)) for account in accounts]
    ear = Ear()
    try:
        await subscribe(other, "fh.>", ear.take)
        await flush(other)
        await one.publish("fh.ask.of-tenant-globex", b"hello")
        await flush(one)
        await other.publish("fh.own", b"")
        await ear.wait_for("fh.own")
        assert ear.heard == ["fh.own"]
    finally:
        await close(one)
        await close(other)
