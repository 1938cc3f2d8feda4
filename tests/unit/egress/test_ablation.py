"""Each check of the gateway is taken away once, and the attack that it stops succeeds: no test passes by accident."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from unit.egress.places import NAME, Open, Recorder, Serve, Trusted, read_all, read_until

from fumehood.egress import http1
from fumehood.egress.credentials import Redactor
from fumehood.egress.dns import NameTable
from fumehood.policy.decision import Decision, allow
from fumehood.policy.egress import Attempt, Rulebook
from fumehood.policy.egress import route as route_module
from fumehood.policy.egress import rulebook as rulebook_module

GET = b"GET /public/x HTTP/1.1\r\nHost: api.example.com\r\n\r\n"
ALLOWED = allow(Attempt("connect", NAME))
NARROW: dict[str, Any] = {"protocol": "http", "methods": ["GET"], "paths": ["/public/**"]}


def allow(*_: object, **__: object) -> Decision[Attempt]:
    return ALLOWED


@dataclass(frozen=True)
class Attack:
    """What a program sends to a route, the check that refuses it, and how a gateway without the check is made."""

    name: str
    rule: dict[str, Any]
    words: bytes
    remove: Callable[[pytest.MonkeyPatch], None]
    private: bool = True


def remove_tricks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rulebook_module, "readings", lambda path: {path})


def remove_framing(patch: pytest.MonkeyPatch) -> None:
    lenient = http1._body  # type: ignore[attr-defined]
    patch.setattr(http1, "_body", lambda headers, version: lenient(headers[:-1], version))


def remove_host(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rulebook_module, "_same_host", lambda header, route: True)


def remove_overrides(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(route_module, "is_harmless_header", lambda name: True)


def remove_parameters(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rulebook_module, "overriding_parameters", lambda query: [])


def remove_bodies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rulebook_module, "METHODS_WITH_BODY", frozenset({"GET"}))


def remove_addresses(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rulebook, "decide_address", allow)
    patch.setattr(Rulebook, "decide_own_address", allow)


ATTACKS = [
    Attack("a private address", {"protocol": "http"}, GET, remove_addresses, private=False),
    Attack("an encoded climb", NARROW, GET.replace(b"/x", b"/%2e%2e/private"), remove_tricks),
    Attack("another host", NARROW, GET.replace(b"api.example.com", b"evil.com"), remove_host),
    Attack("a header for another method", NARROW, GET[:-2] + b"X-HTTP-Method-Override: PUT\r\n\r\n", remove_overrides),
    Attack("a header for another path", NARROW, GET[:-2] + b"X-Script-Name: /public\r\n\r\n", remove_overrides),
    Attack("a parameter for another method", NARROW, GET.replace(b"/x", b"/x?+_method=PUT"), remove_parameters),
    Attack("a body of a GET", NARROW, GET[:-2] + b"Content-Length: 4\r\n\r\nbody", remove_bodies),
    Attack(
        "two lengths",
        {"protocol": "http"},
        GET.replace(b"GET", b"POST")[:-2] + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        remove_framing,
    ),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_a_request_is_stopped_by_its_check_and_by_nothing_else(
    attack: Attack, upstream: Serve, open_box: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    for is_checked in (True, False):
        recorder = Recorder()
        server = upstream(recorder)
        box = open_box({**attack.rule, "ports": [server.port]}, private=attack.private)
        if not is_checked:
            attack.remove(monkeypatch)
        client = box.connect(NAME, server.port)
        client.sendall(attack.words)
        read_until(client, b"\r\n")
        assert len(recorder.heads) == (0 if is_checked else 1)


def test_a_handshake_for_another_server_is_stopped_by_its_check(
    upstream: Serve, trusted: Trusted, open_box: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def greet(connection: socket.socket) -> None:
        connection.sendall(b"hello")

    server = upstream(greet, tls=trusted.authority.context("evil.com"))
    monkeypatch.setattr(Rulebook, "decide_hello", allow)
    box = open_box({"ports": [server.port], "protocol": "tls"}, trust=trusted.client_context)
    client = trusted.client_context().wrap_socket(box.connect(NAME, server.port), server_hostname="evil.com")
    assert read_all(client) == b"hello"
    client.close()


def test_data_in_names_is_stopped_by_the_count_of_new_ones(open_box: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    admit = NameTable.admit
    monkeypatch.setattr(NameTable, "admit", lambda self, name, listed: admit(self, name, listed=True))
    box = open_box({"host": "*.example.com", "ports": [443]}, new_names=1, new_names_a_second=0.0)
    assert all(box.ask(f"data{index}.example.com")[0] == 0 for index in range(50))


def test_a_credential_comes_back_where_nobody_looks_for_it(
    upstream: Serve, trusted: Trusted, open_box: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "ghp_0123456789abcdef")
    monkeypatch.setattr(Redactor, "_spans", lambda self, data: [])

    def send_back(connection: socket.socket) -> None:
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + read_until(connection, b"\r\n\r\n").partition(b"\r\n")[2]
        )

    server = upstream(send_back, tls=trusted.authority.context(NAME))
    secret = {"name": "TOKEN", "from_env": "TOKEN", "inject": {"host": NAME}}
    box = open_box({"ports": [server.port], "protocol": "tls"}, trust=trusted.client_context, secrets=[secret])
    client = box.secure(box.connect(NAME, server.port))
    client.sendall(GET)
    assert b"ghp_0123456789abcdef" in read_until(client, b"\r\n\r\n")
