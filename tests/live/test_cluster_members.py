"""Members of a cluster at a real NATS server: what each may say and hear, how one joins, and how one is removed."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress

import cluster_nats
import pytest
from cluster_nats import NatsServer
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error

from fumehood.cluster import subjects
from fumehood.cluster.accounts import push_accounts
from fumehood.cluster.authority import CLUSTER
from fumehood.cluster.connection import close, connect, flush, subscribe
from fumehood.cluster.join import NewcomerAdmission, join_cluster, make_token
from fumehood.cluster.lease import LeaseTimes, TakenOverError, WorkerLease, make_workers_stream
from fumehood.cluster.permissions import CLAIMS_UPDATE
from fumehood.cluster.stream_accounts import STREAMS_API
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

    def take(self, message: Msg) -> None:
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
        await subscribe(server, subjects.stored("*"), ear.take)
        await subscribe(server, subjects.join("*"), ear.take)
        await flush(server)
        for subject in (*OF_OTHERS, "fh.down.speaks-server.w2.i.c", "fh.beat.speaks-server", "$JS.API.STREAM.LIST"):
            await thief.publish(subject, b"forged")
        own = subjects.down("speaks-server", "speaks-w1", "i", "c")
        await thief.publish(own, b"its own")
        await ear.wait_for(own)
        assert ear.heard == [own]
    finally:
        await close(thief)
        await close(server)


async def test_a_stolen_worker_credential_costs_no_other_its_lease(nats: NatsServer) -> None:
    """JetStream answers wherever it is told to, with rights that the one who asks does not have."""
    server = await connect(nats.authority.make_member("echo-server", "server"))
    other = await connect(nats.authority.make_member("echo-w2", "worker"))
    thief = await connect(nats.authority.make_member("echo-w1", "worker"))
    lease, heard = WorkerLease(other, "echo-w2", LeaseTimes()), Ear()
    targets = [
        subjects.entry("echo-w2"),
        subjects.stored("echo-w2"),
        subjects.order("echo-w2"),
        subjects.up("echo-w2", "echo-server", "i", "c"),
        subjects.down("echo-server", "echo-w2", "i", "c"),
        subjects.report("echo-server", "echo-w2", "i"),
        subjects.join("echo"),
        f"{subjects.inbox('echo-w2')}.x",
    ]
    try:
        await make_workers_stream(server)
        await lease.listen()
        await lease.begin({})
        await subscribe(other, subjects.order("echo-w2"), heard.take)
        await subscribe(other, subjects.up("echo-w2", "*", "*", "*"), heard.take)
        await subscribe(server, subjects.down("echo-server", "*", "*", "*"), heard.take)
        await subscribe(server, subjects.join("*"), heard.take)
        await subscribe(server, subjects.stored("*"), heard.take, headers=())
        read = f"{STREAMS_API}.DIRECT.GET.{subjects.WORKERS_STREAM}.{subjects.entry('echo-w1')}"
        for target in targets:
            await thief.publish(subjects.entry("echo-w1"), b'{"drain": true, "fence": 1}', reply=target)
            await thief.publish(read, b"", reply=target)
        own = await thief.request(read, timeout=_SECONDS)  # whatever came before has arrived
        assert (own.headers or {})["Nats-Subject"] == subjects.entry("echo-w1")
        await flush(server)
        await flush(other)
        await lease.renew({})
        assert heard.heard == []
    finally:
        for client in (thief, other, server):
            await close(client)


async def test_clocks_that_jump_cost_no_lease(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await connect(nats.authority.make_member("clock-server", "server"))
    worker = await connect(nats.authority.make_member("clock-w1", "worker"))
    lease, real = WorkerLease(worker, "clock-w1", LeaseTimes()), time.time
    try:
        await make_workers_stream(server)
        await lease.listen()
        await lease.begin({})
        epoch = lease.epoch
        for jump in (3600.0, -7200.0):
            monkeypatch.setattr(time, "time", lambda jump=jump: real() + jump)
            assert lease.seconds_left > 0
            await lease.renew({})
        assert lease.epoch == epoch
    finally:
        await close(worker)
        await close(server)


async def test_two_processes_with_one_credential_do_not_both_hold_the_lease(nats: NatsServer) -> None:
    server = await connect(nats.authority.make_member("twice-server", "server"))
    credentials = nats.authority.make_member("twice-w1", "worker")
    clients = [await connect(credentials) for _ in range(2)]
    first, second = (WorkerLease(client, "twice-w1", LeaseTimes()) for client in clients)
    try:
        await make_workers_stream(server)
        for lease in (first, second):
            await lease.listen()
            await lease.begin({})
        assert second.epoch > first.epoch
        with pytest.raises(TakenOverError):
            await first.renew({})
        await second.renew({})
    finally:
        for client in (*clients, server):
            await close(client)


API = (
    "INFO",
    *(f"STREAM.{verb}.S" for verb in ("CREATE", "UPDATE", "INFO", "DELETE", "PURGE", "SNAPSHOT", "RESTORE")),
    *(f"STREAM.{verb}.S" for verb in ("MSG.DELETE", "MSG.GET", "PEER.REMOVE", "LEADER.STEPDOWN")),
    "STREAM.NAMES",
    "STREAM.LIST",
    "DIRECT.GET.S",
    "DIRECT.GET.S.$KV.workers.denied-w2",
    *(f"CONSUMER.{verb}.S" for verb in ("CREATE", "NAMES", "LIST")),
    *(f"CONSUMER.{verb}.S.c" for verb in ("CREATE", "DURABLE.CREATE", "INFO", "DELETE", "MSG.NEXT")),
    "CONSUMER.CREATE.S.c.$KV.workers.denied-w1",
    "CONSUMER.LEADER.STEPDOWN.S.c",
    "META.LEADER.STEPDOWN",
    "SERVER.REMOVE",
    "ACCOUNT.PURGE.A",
)
"""Every question that JetStream answers; S stands for the stream of all workers."""


async def test_nats_denies_a_stolen_worker_credential_all_that_is_not_listed(nats: NatsServer) -> None:
    denied: set[str] = set()
    news = asyncio.Event()

    async def note(error: Exception) -> None:
        denied.update(re.findall(r'(?i)permissions violation for \w+ to "([^"]+)"', str(error)))
        news.set()

    thief = await connect(nats.authority.make_member("denied-w1", "worker"))
    thief._error_cb = note  # pyright: ignore[reportPrivateUsage] - `connect` has one of its own
    said = {
        *(f"{prefix}.{each}" for prefix in ("$JS.API", STREAMS_API) for each in map(_of_workers, API)),
        "$JS.ACK.KV_workers.c.1.1.1.1.0",
        "$SYS.REQ.CLAIMS.UPDATE",
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.USER.INFO",
        "_R_.x",
        "fh.beat.server",
        "fh.stored.denied-w1",
        *(each.replace("w2", "denied-w2") for each in OF_OTHERS),
    }
    heard = {
        ">",
        "*",
        "fh.>",
        "$KV.>",
        "$JS.>",
        "$SYS.>",
        "_INBOX.>",
        "_INBOX.*",
        "_R_.>",
        "fh.stored.*",
        "fh.up.*.*.*.*",
    }
    heard |= {f"{STREAMS_API}.>", "fh.down.*.denied-w1.*.*", "$KV.workers.denied-w1", "fh.join.*", "_INBOX.denied-w2.>"}
    try:
        for subject in said:
            await thief.publish(subject, b"")
        for subject in heard:
            await subscribe(thief, subject, Ear().take)
        await flush(thief)
        with suppress(TimeoutError):
            async with asyncio.timeout(_SECONDS):
                while len(denied) < len(said | heard):
                    news.clear()
                    await news.wait()
        assert denied == {subject.lower() for subject in said | heard}  # as the client spells them
    finally:
        await close(thief)


def _of_workers(question: str) -> str:
    return ".".join(subjects.WORKERS_STREAM if part == "S" else part for part in question.split("."))


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
        await subscribe(server, subjects.join("*"), NewcomerAdmission(nats.authority, server.send).answer)
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
        await subscribe(server, subjects.stored("*"), seen.take)
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
        await subscribe(server, subjects.join("*"), NewcomerAdmission(nats.authority, server.send).answer)
        await subscribe(server, subjects.stored("*"), seen.take)
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
