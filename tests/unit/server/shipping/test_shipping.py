"""Audit records on their way to sinks that refuse, hang, die and come back: none is lost, and no writer waits."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from live.traces import wait_until
from record_receivers import SyslogReceiver, http_receiver, listen, listen_file, number_of
from unit.server.hosting import hosted
from upstreams import CertificateAuthority

from fumehood.audit.log import AuditLog
from fumehood.audit.records import Entry, timestamp
from fumehood.audit.store import Query
from fumehood.errors import UsageError
from fumehood.server.identity.principals import Scope
from fumehood.server.settings import load_settings
from fumehood.server.shipping.ocsf import OcsfFileSink, OcsfHttpSink
from fumehood.server.shipping.settings import OcsfSettings, SyslogSettings, WebhookSettings
from fumehood.server.shipping.shipper import Pauses, Shipper
from fumehood.server.shipping.sinks import Sink
from fumehood.server.shipping.syslog import SyslogSink
from fumehood.server.shipping.webhook import WebhookSink

QUICK = Pauses(idle=0.01, first=0.01, most=0.05)
SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()
Start = Callable[..., Shipper]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def start(state: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def begin(sink: Sink, wants: Callable[[str | None], bool] = lambda _: True, name: str = "sink") -> Shipper:
            shipper = Shipper(name, sink, wants, state, QUICK)
            shipper.start()
            stack.callback(shipper.stop)
            return shipper

        yield begin


def write(state: Path, tenant: str, *texts: str, kind: str = "run.finished") -> AuditLog:
    folder = state / "tenants" / tenant / "audit"
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = AuditLog.at(folder)
    for text in texts:
        data = {"status": "success", "detail": text}
        log.append([Entry(timestamp(1e9), kind, "ada", tenant, {"run": "run_1", "sandbox": "sbx"}, data)])
    return log


def numbers(log: AuditLog) -> list[int]:
    return [record.seq for record in log.find(Query())]


def syslog(address: str, **more: object) -> SyslogSink:
    return SyslogSink(SyslogSettings.model_validate({"kind": "syslog", "address": address, **more}), seconds=5)


def webhook(url: str, folder: Path) -> WebhookSink:
    secret = folder / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    return WebhookSink(WebhookSettings.model_validate({"kind": "webhook", "url": url, "secret_file": str(secret)}))


def test_syslog_gets_each_record_with_its_number(state: Path, start: Start) -> None:
    log = write(state, "acme", 'a "quoted" ]\\ text', "line\nbreak")
    receiver = SyslogReceiver(listener := listen())
    shipper = start(syslog(f"tcp://127.0.0.1:{listener.getsockname()[1]}"))
    expected = numbers(log)
    messages = [receiver.messages.get(timeout=30) for _ in expected]
    assert [number_of(message) for message in messages] == expected
    record = next(record for record in log.find(Query(kind="run.finished")))
    message = next(message for message in messages if b"quoted" in message)
    head, _, body = message.partition(b"] {")
    assert head.startswith(b"<110>1 2001-09-09T01:46:40.000000Z ")  # facility 13, severity 6
    assert f' tenant="acme" hash="{record.hash.hex()}"'.encode() in head
    assert b"{" + body == record.body.encode()
    write(state, "acme", "later")
    assert receiver.next_numbers(1) == [expected[-1] + 1]
    wait_until(lambda: shipper.state.waiting == 0, 30, "all has arrived")
    receiver.close()


@pytest.mark.parametrize("kind", ["tls", "stream", "datagram"])
def test_syslog_over_tls_and_socket_files(state: Path, start: Start, tmp_path: Path, kind: str) -> None:
    log, path = write(state, "acme", "one"), tmp_path / "log.sock"
    if kind == "datagram":
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as device:
            device.bind(os.fspath(path))
            device.settimeout(30)
            start(syslog(f"unix://{path}"))
            assert [number_of(device.recv(65536)) for _ in numbers(log)] == numbers(log)
        return
    authority = CertificateAuthority(tmp_path)
    listener = listen() if kind == "tls" else listen_file(path)
    receiver = SyslogReceiver(listener, authority.context("localhost") if kind == "tls" else None)
    if kind == "tls":
        start(syslog(f"tls://localhost:{listener.getsockname()[1]}", ca=str(authority.bundle)))
    else:
        start(syslog(f"unix://{path}"))
    assert receiver.next_numbers(len(numbers(log))) == numbers(log)
    receiver.close()


def test_a_syslog_receiver_that_another_authority_vouches_for_gets_nothing(
    state: Path, start: Start, tmp_path: Path
) -> None:
    write(state, "acme", "one")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    wrong, right = CertificateAuthority(tmp_path / "a"), CertificateAuthority(tmp_path / "b")
    receiver = SyslogReceiver(listener := listen(), wrong.context("localhost"))
    shipper = start(syslog(f"tls://localhost:{listener.getsockname()[1]}", ca=str(right.bundle)))
    wait_until(lambda: shipper.state.failures >= 2, 30, "it was tried twice")
    assert "certificate verify failed" in str(shipper.state.error)
    assert receiver.messages.empty()
    receiver.close()


def test_a_receiver_that_dies_with_records_unread_gets_them_again(state: Path, start: Start) -> None:
    """Without the wait for its end the batch would count as sent: the kernel had taken it."""
    log = write(state, "acme", *(f"{number} " + "x" * 2000 for number in range(60)))
    receiver = SyslogReceiver(listener := listen())
    receiver.read_bytes = 1000
    shipper = start(syslog(f"tcp://127.0.0.1:{listener.getsockname()[1]}"))
    wait_until(lambda: shipper.state.failures >= 2, 30, "it has died twice")
    assert shipper.state.sent == 0
    receiver.read_bytes = None
    assert receiver.next_numbers(len(numbers(log))) == numbers(log)
    receiver.close()


def test_a_receiver_that_does_not_read_in_time_has_not_confirmed(state: Path, start: Start) -> None:
    """The deadline ends the connection from this side, which looks like the end that a receiver makes."""
    write(state, "acme", "one")
    with listen() as silent:  # its queue takes connections
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        settings = SyslogSettings.model_validate({"kind": "syslog", "address": address})
        shipper = start(SyslogSink(settings, seconds=0.2))
        wait_until(lambda: shipper.state.failures >= 1, 30, "the time is over")
        assert shipper.state.sent == 0
    assert re.search("has not read everything|timed out", str(shipper.state.error))  # on whichever step time runs out


def test_a_webhook_is_signed_and_a_sink_that_was_away_misses_nothing(state: Path, start: Start, tmp_path: Path) -> None:
    log = write(state, "acme", "one")
    with listen() as free:
        port = free.getsockname()[1]
    shipper = start(webhook(f"http://127.0.0.1:{port}/records", tmp_path))
    wait_until(lambda: shipper.state.failures >= 2, 30, "nothing listens")
    assert shipper.state.waiting == len(numbers(log))
    with http_receiver(port, (500, 503, 404)) as receiver:
        seen = [receiver.requests.get(timeout=30) for _ in range(4)]
    assert len({headers["webhook-id"] for headers, _ in seen}) == 1
    for headers, body in seen:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = base64.b64encode(hmac.digest(b"k" * 24, signed, hashlib.sha256)).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"
    assert [each["record"]["seq"] for each in json.loads(seen[-1][1])["records"]] == numbers(log)


def test_a_new_process_goes_on_where_the_last_has_stopped(state: Path, start: Start, tmp_path: Path) -> None:
    log = write(state, "acme", "one")
    with http_receiver() as receiver:
        first = start(webhook(receiver.url, tmp_path))
        receiver.requests.get(timeout=30)
        wait_until(lambda: first.state.waiting == 0, 30, "all has arrived")
        first.stop()
        before = numbers(log)
        write(state, "acme", "two", "three")
        second = start(webhook(receiver.url, tmp_path))
        _, body = receiver.requests.get(timeout=30)
        assert [each["record"]["seq"] for each in json.loads(body)["records"]] == numbers(log)[len(before) :]
        wait_until(lambda: second.state.waiting == 0, 30, "all has arrived")
    cursor = json.loads((state / "shipping" / "sink" / "acme.json").read_text())
    assert cursor["seq"] == numbers(log)[-1]


def test_a_sink_that_hangs_holds_up_no_writer_and_two_processes_do_not_both_send(
    state: Path, start: Start, tmp_path: Path
) -> None:
    write(state, "acme", "one")
    with http_receiver() as receiver:
        receiver.hold = threading.Event()
        both = [start(webhook(receiver.url, tmp_path)) for _ in range(2)]
        log = write(state, "acme", *("more" for _ in range(500)))
        receiver.hold.set()
        got: list[int] = []
        while len(got) < len(numbers(log)):
            _, body = receiver.requests.get(timeout=30)
            assert len(body) < 600 * 1024
            got += [each["record"]["seq"] for each in json.loads(body)["records"]]
        assert got == numbers(log)
        wait_until(lambda: any(each.state.sent == len(got) for each in both), 30, "all has arrived")
        assert {each.state.sent for each in both} == {0, len(got)}


def test_a_chain_that_is_refused_for_ever_holds_up_no_other(state: Path, start: Start, tmp_path: Path) -> None:
    bad, good = write(state, "bad", "one"), write(state, "good", "one")

    class Picky:
        def __init__(self, inner: WebhookSink) -> None:
            self._inner, self.abort = inner, inner.abort

        def send(self, batch: Any) -> None:
            receiver.answers.put(400 if batch.tenant == "bad" else 204)
            self._inner.send(batch)

    with http_receiver() as receiver:
        shipper = start(Picky(webhook(receiver.url, tmp_path)))
        wait_until(lambda: shipper.state.sent == len(numbers(good)), 30, "the other chain has arrived")
        assert shipper.state.waiting == len(numbers(bad))
        assert not (state / "shipping" / "sink" / "bad.json").exists()


def test_a_sink_gets_the_tenants_that_it_is_for(state: Path, start: Start, tmp_path: Path) -> None:
    write(state, "acme", "mine")
    write(state, "other", "not yours")
    settings = WebhookSettings.model_validate(
        {"kind": "webhook", "url": "http://127.0.0.1:1/", "secret_file": "/x", "tenants": ["acme"], "own": False}
    )
    with http_receiver() as receiver:
        shipper = start(webhook(receiver.url, tmp_path), settings.wants)
        _, body = receiver.requests.get(timeout=30)
        wait_until(lambda: shipper.state.waiting == 0, 30, "all has arrived")
        assert (json.loads(body)["tenant"], b"not yours" in body) == ("acme", False)
        assert receiver.requests.empty()


def test_a_file_gets_whole_events_after_a_crash_and_a_rotation(state: Path, start: Start, tmp_path: Path) -> None:
    log, path = write(state, "acme", "one"), tmp_path / "events.jsonl"
    path.write_text('{"whole": true}\n{"half')
    shipper = start(OcsfFileSink(str(path)))
    wait_until(lambda: shipper.state.sent == len(numbers(log)), 30, "all has arrived")
    first, *events = [json.loads(line) for line in path.read_text().splitlines()]
    assert first == {"whole": True}
    assert [event["metadata"]["sequence"] for event in events] == numbers(log)
    assert oct(path.stat().st_mode & 0o777) == "0o644"  # it was there before
    path.rename(tmp_path / "events.1")
    write(state, "acme", "denied", kind="egress.denied")
    wait_until(lambda: shipper.state.sent == len(numbers(log)), 30, "all has arrived")
    (denied,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert {name: denied[name] for name in ("class_uid", "category_uid", "type_uid", "action_id", "severity_id")} == {
        "class_uid": 4001,
        "category_uid": 4,
        "type_uid": 400105,
        "action_id": 2,
        "severity_id": 3,
    }
    assert json.loads(denied["raw_data"])["data"]["detail"] == "denied"
    assert (denied["metadata"]["tenant_uid"], denied["status_id"]) == ("acme", 2)
    assert oct(path.stat().st_mode & 0o777) == "0o600"


def test_events_go_to_an_address_with_a_token(state: Path, start: Start, tmp_path: Path) -> None:
    log = write(state, "acme", "one")
    token = tmp_path / "token"
    token.write_text("abc\n")
    token.chmod(0o600)
    with http_receiver() as receiver:
        given = {"kind": "ocsf", "url": receiver.url, "token_file": str(token)}
        start(OcsfHttpSink(OcsfSettings.model_validate(given)))
        headers, body = receiver.requests.get(timeout=30)
    assert headers["authorization"] == "Bearer abc"
    assert [json.loads(line)["metadata"]["sequence"] for line in body.splitlines()] == numbers(log)


def test_a_cursor_that_cannot_be_read_is_said_and_a_new_log_is_sent_from_its_beginning(
    state: Path, start: Start, tmp_path: Path
) -> None:
    log = write(state, "acme", "one")
    folder = state / "shipping" / "sink"
    folder.mkdir(parents=True)
    (folder / "acme.json").write_text("{}")
    with http_receiver() as receiver:
        first = start(webhook(receiver.url, tmp_path))
        wait_until(lambda: first.state.failures > 0, 30, "it was read")
        assert "remove it to send the whole log again" in str(first.state.error)
        first.stop()
        (folder / "acme.json").write_text(json.dumps({"log": "log_of_before", "seq": 1000}))
        start(webhook(receiver.url, tmp_path))
        _, body = receiver.requests.get(timeout=30)
        assert [each["record"]["seq"] for each in json.loads(body)["records"]] == numbers(log)


@pytest.mark.anyio
async def test_a_server_ships_all_chains_and_says_how_that_goes(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    with listen() as free:
        port = free.getsockname()[1]
    given = {"hook": {"kind": "webhook", "url": f"http://127.0.0.1:{port}/", "secret_file": str(secret)}}
    async with hosted(tmp_path / "state", shipping=given) as host:
        client, operator = await host.tenant("acme"), await host.key("acme", [Scope.OPERATE])
        assert (await client.post("/sandboxes", json={})).status_code == 201

        async def until(path: str, text: str) -> str:
            async with asyncio.timeout(60):
                while text not in (answer := (await operator.get(path)).text):
                    pass
            return answer

        await until("/health/ready", '"shipping":"behind"')
        assert 'fumehood_shipping_sent_total{sink="hook"} 0' in (await operator.get("/metrics")).text
        with http_receiver(port) as receiver:
            tenants: set[str | None] = set()
            while tenants != {"acme", None}:
                _, body = await asyncio.to_thread(receiver.requests.get, timeout=60)
                tenants.add(json.loads(body)["tenant"])
            await until("/metrics", 'fumehood_shipping_failures{sink="hook"} 0')
            assert (await operator.get("/health/ready")).json() == {"status": "ready"}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"kind": "syslog", "address": "tcp://logs.example:514"}, "must be tls://"),
        ({"kind": "syslog", "address": "udp://127.0.0.1:514"}, "must be tls://HOST:PORT"),
        ({"kind": "webhook", "url": "http://hooks.example/", "secret_file": "/x"}, "https://"),
        ({"kind": "webhook", "url": "https://hooks.example/"}, "secret_file"),
        ({"kind": "ocsf"}, "either `file` or `url`"),
        ({"kind": "ocsf", "file": "events.jsonl"}, "absolute path"),
        ({"kind": "pigeon"}, "kind"),
    ],
)
def test_sinks_that_would_show_records_to_others_are_refused(given: dict[str, object], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        load_settings(None, shipping={"sink": given})


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("k" * 32)
    secret.chmod(0o644)
    settings = {"kind": "webhook", "url": "https://hooks.example/", "secret_file": str(secret)}
    with pytest.raises(UsageError, match="can be read by every user"):
        WebhookSink(WebhookSettings.model_validate(settings))
    secret.chmod(0o600)
    secret.write_text("short")
    with pytest.raises(UsageError, match="24 characters"):
        WebhookSink(WebhookSettings.model_validate(settings))
