"""Attacks of a process of the space on others: its credentials and the receivers' own checks stop them."""

# pyright: reportPrivateUsage=false, reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportArgumentType=false

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from unittest.mock import ANY

import anyio
import cluster_nats
import nats_server
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID
from unit.runtime.sample_agents import READING, Errand, Greeter, Greeting, News, Order, Reader, Reply

from fumehood import UsageError
from fumehood.audit import AuditLog, Query
from fumehood.cli.cluster.runtimes import RuntimeWishes, issue_credentials
from fumehood.runtime import AgentId, DeliveryError, Grants, Reason, RefusedError
from fumehood.runtime.envelopes import Envelope, ReplyEnvelope, ReplyFailure
from fumehood.runtime.identity import TopicId
from fumehood.runtime.messages import Payload
from fumehood.runtime.nats import NatsConnection, NatsRuntime, ProcessPermissions, process_permissions
from fumehood.runtime.nats import connection as connection_module
from fumehood.runtime.nats import reception as reception_module
from fumehood.runtime.nats.connection import NatsLink
from fumehood.runtime.nats.directory import GrantsEntry
from fumehood.runtime.nats.subjects import Address, Subjects

pytestmark = pytest.mark.anyio

SUBJECTS = Subjects("default")
TYPES = {
    "bank": ("greeter", "reader"),
    "boss": ("errand",),
    # May be the home of its own type, and is hostile.
    "mallory": ("clown",),
}
USERS = {
    name: process_permissions(name, types, application=name == "boss", grants=True) for name, types in TYPES.items()
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


OpenProcess = Callable[[str, AuditLog | None], NatsRuntime]
"""The runtime of a process with that name, with its own credentials."""


@pytest.fixture(scope="module", params=["passwords", "cluster"])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenProcess]:
    """Users of one account, and those of a tenant's account that `hood cluster` makes."""
    if request.param == "passwords":
        with nats_server.running(USERS) as server:
            asyncio.run(_make_space(server.url_of(nats_server.ADMINISTRATOR)))
            yield lambda name, audit: NatsRuntime(server.url_of(name), process=name, audit=audit or False, lease=30)
        return
    folder = tmp_path_factory.mktemp("credentials")
    with cluster_nats.running() as cluster:
        for name, types in TYPES.items():
            wishes = RuntimeWishes("acme", name, types, is_application=name == "boss", writes_grants=True)
            issue_credentials(cluster.authority, wishes, folder / name)
        yield lambda name, audit: NatsRuntime(credentials=folder / name, audit=audit or False, lease=30)


async def _make_space(url: str) -> None:
    async with NatsRuntime(url, audit=False):
        pass


@dataclass
class Scene:
    """A bank that greets and reads, a boss that may send to it, and a hostile process with its own credentials."""

    bank: NatsRuntime
    boss: NatsRuntime
    mallory: NatsRuntime
    read: list[tuple[AgentId, str]]

    @property
    def link(self) -> NatsLink:
        assert self.mallory._link is not None
        return self.mallory._link

    def api(self, question: str, *names: str) -> str:
        return self.mallory._subjects.api(question, *names)

    @property
    def addresses(self) -> tuple[Address, Address, Address]:
        return self.bank._homes.address, self.boss._homes.address, self.mallory._homes.address

    async def settle(self) -> None:
        """What mallory has sent, NATS has delivered, and the bank has judged."""
        await self.link.flush()
        await self.boss.send(Greeting(name="after"), to="greeter")


@asynccontextmanager
async def open_scene(open_process: OpenProcess, audit: AuditLog | None = None) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        bank, boss, mallory = [await stack.enter_async_context(open_process(name, audit)) for name in USERS]
        read: list[tuple[AgentId, str]] = []
        await bank.register("greeter", Greeter)
        await bank.register("reader", Reader, make=lambda _: Reader(read), grants=READING)
        await boss.register("errand", Errand, grants=Grants(agents=["greeter"]))
        for each in (Greeting, Reply, News, Order):
            boss.messages.add(each)
            mallory.messages.add(each)
        yield Scene(bank, boss, mallory, read)


@pytest.fixture
async def scene(secured: OpenProcess) -> AsyncIterator[Scene]:
    async with open_scene(secured) as opened:
        yield opened


def forged(sender: AgentId | None, topic: TopicId | None = None, to: str = "greeter") -> Envelope:
    payload = Payload("Greeting", b'{"name":"forged"}') if topic is None else Payload("News", b'{"headline":"forged"}')
    return Envelope("msg_f", payload, sender, AgentId(to), topic, None, 0, anyio.current_time() + 60)


def as_bytes(envelope: Envelope) -> bytes:
    return envelope.to_bytes(anyio.current_time(), time.time())


async def test_processes_with_the_least_permissions_work_together(scene: Scene) -> None:
    answer = await scene.boss.send(Order(what="greet", target="greeter"), to="errand", reply=Reply)
    assert answer.text == "Hello you, I am greeter/default and you are errand/default"
    await scene.boss.publish(News(headline="hot"), topic="news.a")
    await scene.bank.idle()
    assert [text for _, text in scene.read] == ["news.a/default: hot"]


@pytest.mark.parametrize("sender", [None, AgentId("errand")], ids=["the application", "an agent of the boss"])
async def test_a_process_cannot_speak_for_another_even_under_its_own_name(scene: Scene, sender: AgentId | None) -> None:
    bank, boss, mallory = scene.addresses
    for by, token in ((mallory, "!"), (mallory, "errand"), (boss, "!"), (boss, "errand"), (mallory, "clown")):
        subject = SUBJECTS.to(bank, by, "ask", token)
        await scene.link.publish(subject, as_bytes(forged(sender)), SUBJECTS.to(by, bank, "answer", "msg_f"))
    await scene.settle()
    # The last one has its own subject, and a sender for whom it may not speak: that is judged by the bank.
    assert [letter.reason for letter in scene.bank.dead_letters] == [Reason.REFUSED]
    assert not scene.bank._dispatcher.answering


@pytest.mark.parametrize("place", ["the id of a message", "the home of an agent"])
async def test_a_process_cannot_have_others_say_what_it_puts_into_a_subject(scene: Scene, place: str) -> None:
    """Subjects are words of a line to NATS, and what answers is a process that may speak for the application."""
    bank, boss, mallory = scene.addresses
    payload, end = Payload("News", b'{"headline":"forged"}'), anyio.current_time() + 60
    data = as_bytes(Envelope("msg_f", payload, None, AgentId("reader"), None, None, 0, end)).decode()
    line = f"PUB {SUBJECTS.to(bank, boss, 'ask', '!')} {SUBJECTS.to(boss, bank, 'answer', 'msg_f')} {len(data)}"
    more = f"x  0\r\n\r\n{line}\r\n{data}\r\nPUB x"
    assert scene.boss._link is not None
    # Not every release of the client looks at subjects.
    scene.boss._link._client._skip_subject_validation = True  # pyright: ignore[reportAttributeAccessIssue]
    if place == "the id of a message":
        request = replace(forged(AgentId("clown"), to="errand"), message_id=more)
        await scene.link.publish(
            SUBJECTS.to(boss, mallory, "ask", "clown"), as_bytes(request), SUBJECTS.to(mallory, boss, "answer", "x")
        )
    else:
        with suppress(DeliveryError):
            await scene.boss._link.publish(SUBJECTS.to(Address("mallory", more), boss, "probe"), b"[]")
    await scene.link.flush()
    await scene.boss._link.flush()
    await scene.settle()
    await scene.bank.idle()
    assert scene.read == []


async def test_a_process_cannot_send_as_the_application_without_the_permission(scene: Scene) -> None:
    with pytest.raises(DeliveryError, match="NATS does not let the process mallory send as the application"):
        await scene.mallory.send(Greeting(name="x"), to="greeter")


async def test_grants_are_judged_by_the_receiver_too(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    await scene.boss.grant("errand", Grants())
    await scene.bank._directory.catch_up()
    # A hostile boss: its own process does not ask.
    monkeypatch.setattr(scene.boss._registry, "grants_of", lambda _: Grants(agents=["greeter"]))
    with pytest.raises(RefusedError, match="errand/default may not send to greeter/default"):
        await scene.boss.send(Order(what="greet", target="greeter"), to="errand")
    assert "errand/default may not send to greeter/default" in [*scene.bank.dead_letters][-1].detail


async def test_a_process_cannot_take_anothers_agents_or_change_their_grants(scene: Scene) -> None:
    directory = scene.mallory._directory
    everything = GrantsEntry(type=Grants(agents=["*"], publish=["*"]))
    for key, entry in (("type.greeter", directory.type("greeter")), ("grants.errand", everything)):
        with pytest.raises(DeliveryError, match=r"(?i)permissions violation"):
            await directory.write(key, entry, 0, seconds=0.5)
    with pytest.raises(DeliveryError, match=r"(?i)permissions violation"):
        await directory.write("process.bank", None, 0, seconds=0.5)
    home = scene.boss._directory.home(AgentId("greeter"))
    assert home is not None
    assert home.process == "bank"


async def test_an_answer_of_a_process_that_was_not_asked_does_not_count(scene: Scene) -> None:
    bank, boss, mallory = scene.addresses
    answer = ReplyEnvelope("msg_1", AgentId("greeter"), Payload("Reply", b'{"text":"forged"}')).to_bytes()
    envelope = forged(None)
    request = scene.boss._pending.open(envelope)
    scene.boss._requests._open["msg_f"] = scene.boss._requests._open.get("msg_f") or _open_request(envelope, bank)
    for by in (bank, mallory):
        await scene.link.publish(SUBJECTS.to(boss, by, "answer", "msg_f"), answer.replace(b"msg_1", b"msg_f"))
    await scene.settle()
    assert not request._is_answered.is_set()
    scene.boss._pending.close(envelope)


def _open_request(envelope: Envelope, home: Address):  # type: ignore[no-untyped-def]
    from fumehood.runtime.nats.requests import _OpenRequest

    return _OpenRequest(envelope, home, "")


async def test_messages_that_nats_is_made_to_deliver_do_not_count(scene: Scene) -> None:
    """A consumer of its own publications, which NATS delivers to whatever subject the process names."""
    bank, boss, _ = scene.addresses
    stream, consumer = SUBJECTS.publication_stream, SUBJECTS.consumer("clown", 3)
    wanted = SUBJECTS.publications("clown", 3)
    stolen = SUBJECTS.to(bank, boss, "ask", "!")
    config = {"name": consumer, "durable_name": consumer, "filter_subject": wanted, "ack_policy": "explicit"}
    question = {"stream_name": stream, "config": config}
    await scene.link.call(scene.api("CONSUMER.CREATE", stream, consumer, wanted), question)
    own = wanted.replace(".*.*.", ".mallory.clown.")
    await scene.link.call(own, as_bytes(forged(None)))
    await scene.link.publish(scene.api("CONSUMER.MSG.NEXT", stream, consumer), b'{"batch": 1}', stolen)
    # And what it has written itself into the directory.
    await scene.link.publish(
        scene.api("STREAM.MSG.GET", SUBJECTS.directory_stream),
        b'{"last_by_subj": "%s"}' % SUBJECTS.entry("process.mallory").encode(),
        stolen,
    )
    await scene.settle()
    assert list(scene.bank.dead_letters) == []
    assert not scene.bank._replies.knows("msg_f")
    with pytest.raises(DeliveryError, match=r"(?i)permissions violation"):
        await scene.link.request(scene.api("DIRECT.GET", SUBJECTS.directory_stream), b"{}", seconds=0.5)


async def test_an_acknowledgement_overwrites_another_s_entry_only_where_streams_share_the_account(
    scene: Scene, request: pytest.FixtureRequest
) -> None:
    """JetStream acknowledges wherever the writer says. The streams of a cluster's tenants are in another account."""
    await scene.link.publish(SUBJECTS.entry("grants.clown"), b"{}", SUBJECTS.entry("grants.errand"))
    await scene.link.request(scene.api("STREAM.INFO", SUBJECTS.directory_stream), b"")  # it is stored by now
    await scene.boss._directory.reload()
    is_gone = scene.boss._directory.grants("errand") is None
    assert is_gone == ("passwords" in request.node.name)


async def test_a_publication_in_anothers_name_is_refused(scene: Scene) -> None:
    """Under its own subject, which NATS allows."""
    envelope = forged(None, TopicId("news.a"), "reader")
    subject = SUBJECTS.publication(envelope.to, "mallory", AgentId("clown"))
    await scene.link.call(subject, as_bytes(envelope))
    stolen = SUBJECTS.publication(envelope.to, "mallory", None)
    with pytest.raises(DeliveryError, match=r"(?i)permissions violation"):
        await scene.link.call(stolen, as_bytes(envelope), seconds=0.5)
    await scene.bank.idle()
    assert scene.read == []
    assert [letter.reason for letter in scene.bank.dead_letters] == [Reason.REFUSED]


async def test_an_earlier_incarnation_is_not_listened_to(scene: Scene) -> None:
    bank, boss, _ = scene.addresses
    assert scene.boss._link is not None
    for incarnation, count in (("0" * 16, 1), (boss.incarnation, 1)):
        by = Address("boss", incarnation)
        reply = SUBJECTS.to(by, bank, "answer", "msg_f")
        await scene.boss._link.publish(SUBJECTS.to(bank, by, "ask", "!"), as_bytes(forged(None)), reply)
        await scene.settle()
        assert len(scene.bank.dead_letters) == count
    assert "has lost its lease, or was started anew" in next(iter(scene.bank.dead_letters)).detail


async def test_what_a_process_attempts_is_in_the_audit_log_of_the_other(secured: OpenProcess, tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "audit")
    async with open_scene(secured, log) as scene:
        await scene.boss.grant("errand", Grants())
        await scene.bank._directory.catch_up()
        scene.boss._registry.grants_of = lambda _: Grants(agents=["greeter"])  # type: ignore[method-assign]
        with pytest.raises(DeliveryError):
            await scene.boss.send(Order(what="greet", target="greeter"), to="errand")
    (record,) = log.find(Query(kind="grant.denied"))
    assert (record.data["action"], record.data["target"]) == ("send to", "greeter/default")


# What a process may write itself, in a form that others do not expect.

OF_CLOWNS = {"members": {"mallory": "1"}, "homes": ["mallory"] * 16, "subscriptions": []}
LIES: dict[str, dict[str, object]] = {
    "no homes": {"homes": []},
    "too many homes": {"homes": [None] * 17},
    "a home that is no name": {"homes": ["a.b"] * 16},
    "an incarnation that is no name": {"members": {"mallory": "1.2.ask.!"}},
    "a subscription that is none": {"subscriptions": ["((("]},
    "a subscription of an agent that cannot be": {"own_subscriptions": [["\n", "news.*"]]},
    "a subscription of an agent to what is no topic": {"own_subscriptions": [["a", "((("]]},
}


async def write_clowns(scene: Scene, **lie: object) -> None:
    takes = {"Greeting": scene.boss._types.digest_of("Greeting")}
    await scene.link.call(SUBJECTS.entry("type.clown"), json.dumps({"takes": takes} | OF_CLOWNS | lie).encode())
    await scene.boss._directory.catch_up()


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_an_entry_of_another_form_disturbs_no_other_type(scene: Scene, lie: dict[str, object]) -> None:
    await write_clowns(scene, **lie)
    await scene.boss.publish(News(headline="hot"), topic="news.a")
    await scene.bank.idle()
    assert [text for _, text in scene.read] == ["news.a/default: hot"]
    with pytest.raises(DeliveryError):
        await scene.boss.send(Greeting(name="x"), to="clown")


async def test_a_home_that_changes_under_a_request_ends_that_request_and_no_runtime(scene: Scene) -> None:
    """The request follows its agent, in a task of the runtime's own."""
    _, boss, mallory = scene.addresses

    async def ignore(_: object) -> None:
        pass

    await scene.link.subscribe(SUBJECTS.to_all(mallory), ignore)
    await scene.mallory._unsubscribe()
    await write_clowns(scene, members={"mallory": mallory.incarnation})
    asking = asyncio.ensure_future(scene.boss.send(Greeting(name="x"), to="clown"))
    while not scene.boss._requests._open:  # noqa: ASYNC110
        await asyncio.sleep(0)
    [message_id] = scene.boss._requests._open
    await write_clowns(scene, homes=[])
    answer = ReplyEnvelope(message_id, AgentId("clown"), failure=ReplyFailure("elsewhere", "x"))
    await scene.link.publish(SUBJECTS.to(boss, mallory, "answer", message_id), answer.to_bytes())
    with pytest.raises(DeliveryError, match="has no home"):
        await asking
    assert await scene.boss.send(Greeting(name="y"), to="greeter")


async def test_grants_of_another_process_make_this_one_read_no_file(scene: Scene, tmp_path: Path) -> None:
    """Where a policy is granted its digest is written; from a program a policy may be given as its file, too."""
    (tmp_path / "policy.yaml").write_text("resources: {memory: 64M}\n")
    for given in (str(tmp_path / "policy.yaml"), {"resources": {"memory": "64M"}}):
        entry = json.dumps({"type": {"policies": [given]}}).encode()
        await scene.link.call(SUBJECTS.entry("grants.clown"), entry)
        await scene.boss._directory.catch_up()
        assert scene.boss._directory.grants("clown") is None


@pytest.mark.parametrize("audited", [True, False])
async def test_text_that_cannot_be_written_ends_no_runtime(
    secured: OpenProcess, tmp_path: Path, *, audited: bool
) -> None:
    """Half of a surrogate pair is text to JSON, and to nothing else."""
    async with open_scene(secured, AuditLog.at(tmp_path / "audit") if audited else None) as scene:
        bank, _, mallory = scene.addresses
        for field in ("name", "cause", "chain"):
            for topic in (None, TopicId("news.a")):
                envelope = forged(AgentId("clown"), topic, "reader" if topic else "greeter")
                match field:
                    case "name":
                        bad = replace(envelope, payload=Payload("\ud800", b"{}"))
                    case "cause":
                        bad = replace(envelope, cause="\ud800")
                    case _:
                        bad = replace(envelope, chain=("\ud800",))
                if topic is None:
                    reply = SUBJECTS.to(mallory, bank, "answer", "msg_f")
                    await scene.link.publish(SUBJECTS.to(bank, mallory, "ask", "clown"), as_bytes(bad), reply)
                else:
                    subject = SUBJECTS.publication(bad.to, "mallory", AgentId("clown"))
                    await scene.link.call(subject, as_bytes(bad))
        await scene.settle()
        await scene.boss.publish(News(headline="hot"), topic="news.a")
        await scene.bank.idle()
        assert [text for _, text in scene.read] == ["news.a/default: hot"]


async def test_messages_that_are_refused_cost_others_no_question_each(scene: Scene) -> None:
    """Mallory is not the home of the agent in whose name it asks. The directory may be behind, and is read anew."""
    bank, _, mallory = scene.addresses
    questions, refresh = 0, scene.bank._directory.refresh

    async def count(key: str) -> None:
        nonlocal questions
        questions += 1
        await refresh(key)

    scene.bank._directory.refresh = count  # type: ignore[method-assign]
    asked = 400
    for number in range(asked):
        envelope = replace(forged(AgentId("clown")), message_id=f"msg_{number}")
        reply = SUBJECTS.to(mallory, bank, "answer", envelope.message_id)
        await scene.link.publish(SUBJECTS.to(bank, mallory, "ask", "clown"), as_bytes(envelope), reply)
    await scene.settle()
    assert len(scene.bank.dead_letters) == asked
    assert 0 < questions < asked


async def test_a_publication_is_for_the_type_that_its_subject_names(scene: Scene) -> None:
    """By its type the home decides for a whole batch whether it is acknowledged before it is handled."""
    grants = GrantsEntry(type=Grants(publish=["news.*"]))
    await scene.link.call(SUBJECTS.entry("grants.clown"), grants.model_dump_json().encode())
    await scene.bank._directory.catch_up()
    envelope = forged(AgentId("clown"), TopicId("news.a"), "reader")
    subject = SUBJECTS.publication(AgentId("greeter"), "mallory", AgentId("clown"))
    await scene.link.call(subject, as_bytes(envelope))
    other_key = SUBJECTS.publication(AgentId("reader", "b"), "mallory", AgentId("clown"))
    await scene.link.call(other_key, as_bytes(envelope))
    await scene.bank.idle()
    assert scene.read == []


# Each check is taken out, and the attack that it stops succeeds.


async def test_without_the_check_of_the_subject_mallory_speaks_for_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank, _, mallory = scene.addresses
    monkeypatch.setattr(reception_module, "sender_token", lambda _: ANY)
    subject = SUBJECTS.to(bank, mallory, "ask", "clown")
    await scene.link.publish(subject, as_bytes(forged(None)), SUBJECTS.to(mallory, bank, "answer", "msg_f"))
    await scene.settle()
    assert list(scene.bank.dead_letters) == []


async def test_without_the_check_of_grants_the_receiver_obeys(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    await scene.boss.grant("errand", Grants())
    await scene.bank._directory.catch_up()
    for runtime in (scene.boss, scene.bank):
        monkeypatch.setattr(runtime._registry, "grants_of", lambda _: Grants(agents=["greeter"]))
    assert await scene.boss.send(Order(what="greet", target="greeter"), to="errand")


# Encryption


def test_only_the_loopback_is_connected_to_without_encryption() -> None:
    with pytest.raises(UsageError, match=r"messages to nats\.example would not be encrypted"):
        NatsConnection("nats://nats.example:4222")
    with pytest.raises(UsageError, match="is not valid: ''"):
        NatsConnection("")
    assert NatsConnection("tls://nats.example:4222").urls == ["tls://nats.example:4222"]
    assert connection_module._shown("nats://me:secret@127.0.0.1:1") == "nats://127.0.0.1:1"


async def test_certificates_of_both_sides_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_CONNECT_SECONDS", 0.5)
    authority, other = Authority("ours"), Authority("another")
    authority.write(tmp_path, "server")
    tls = f'tls {{ cert_file: "{tmp_path}/server.pem", key_file: "{tmp_path}/server.key", ca_file: "{tmp_path}/ca.pem", verify: true }}\n'  # noqa: E501
    with nats_server.running(extra=tls) as server:
        url = server.url.replace("nats://", "tls://")
        async with NatsRuntime(NatsConnection(url, tls=authority.context(tmp_path)), audit=False) as runtime:
            await runtime.register("greeter", Greeter)
            assert await runtime.send(Greeting(name="x"), to="greeter")
        for context in (authority.context(None), other.context(None)):
            with pytest.raises(DeliveryError, match="cannot be used"):
                async with NatsRuntime(NatsConnection(url, tls=context), audit=False):
                    pass


async def test_users_of_an_operator_sign_nats_challenge_and_have_what_their_tokens_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "_CONNECT_SECONDS", 1.0)
    operator, account, system = NatsKey("O"), NatsKey("A"), NatsKey("A")
    limits = {**dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn"), -1), "wildcards": True}
    stored = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
    accounts = {
        account.public: operator.token(account, {"type": "account", "limits": limits | stored}),
        system.public: operator.token(system, {"type": "account", "limits": limits}),
    }
    config = (
        f"operator: {operator.token(operator, {'type': 'operator'})}\nsystem_account: {system.public}\n"
        f"max_control_line: 64KB\nresolver: MEMORY\nresolver_preload: {json.dumps(accounts)}\n"
    )

    def connection(allowed: ProcessPermissions | None) -> NatsConnection:
        user = NatsKey("U")
        body: dict[str, object] = {"type": "user", **dict.fromkeys(("subs", "data", "payload"), -1)}
        if allowed is not None:
            body |= {"pub": {"allow": allowed.publish}, "sub": {"allow": allowed.subscribe}}
        return NatsConnection(server.url, token=account.token(user, body), sign=user.sign)

    with nats_server.running(extra=config) as server:
        async with NatsRuntime(connection(None), process="anyone", audit=False) as first:
            await first.register("greeter", Greeter)
            async with NatsRuntime(connection(USERS["boss"]), process="boss", audit=False) as boss:
                for each in (Greeting, Reply):
                    boss.messages.add(each)
                assert await boss.send(Greeting(name="x"), to="greeter")
        stranger = replace(connection(None), sign=NatsKey("U").sign)
        with pytest.raises(DeliveryError, match="cannot be used"):
            async with NatsRuntime(stranger, audit=False):
                pass
    with pytest.raises(UsageError, match="belong together"):
        NatsConnection(token="x")


class NatsKey:
    """An Ed25519 key of an operator (O), an account (A) or a user (U), in the spelling of NATS."""

    def __init__(self, kind: str) -> None:
        self._key = Ed25519PrivateKey.generate()
        data = bytes([{"O": 14 << 3, "A": 0, "U": 20 << 3}[kind]]) + self._key.public_key().public_bytes_raw()
        self.public = _base32(data + binascii.crc_hqx(data, 0).to_bytes(2, "little"))

    def token(self, subject: NatsKey, body: dict[str, object]) -> str:
        """A JSON Web Token about the subject, signed by this key."""
        claims = {"iat": int(time.time()), "iss": self.public, "sub": subject.public, "name": "tests"}
        claims = {**claims, "jti": subject.public, "nats": {**body, "version": 2}}
        head, main = (_part(json.dumps(each).encode()) for each in ({"typ": "JWT", "alg": "ed25519-nkey"}, claims))
        return f"{head}.{main}.{_part(self._key.sign(f'{head}.{main}'.encode()))}"

    def sign(self, nonce: str) -> bytes:
        return base64.b64encode(self._key.sign(nonce.encode()))


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=")


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Authority:
    """Signs one certificate for the loopback."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = self._sign(self._name, self._key, is_authority=True)

    def _sign(self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(self._name).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        return builder.add_extension(names, critical=False).sign(self._key, hashes.SHA256())

    def write(self, folder: Path, name: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        signed = self._sign(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key, is_authority=False)
        plain = serialization.NoEncryption()
        pem = serialization.Encoding.PEM
        (folder / "ca.pem").write_bytes(self.certificate.public_bytes(pem))
        (folder / f"{name}.pem").write_bytes(signed.public_bytes(pem))
        (folder / f"{name}.key").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))

    def context(self, folder: Path | None) -> ssl.SSLContext:
        """With a certificate of its own from that folder, or with none."""
        context = ssl.create_default_context()
        context.load_verify_locations(cadata=self.certificate.public_bytes(serialization.Encoding.PEM).decode())
        if folder is not None:
            context.load_cert_chain(folder / "server.pem", folder / "server.key")
        return context
