"""The proxy, for clients that prefer one: the same rules by other words."""

from __future__ import annotations

import json
import socket
import struct

import pytest
from unit.egress.places import (
    NAME,
    Open,
    Recorder,
    Serve,
    Trusted,
    Upstream,
    echo,
    read_all,
    read_exactly,
    read_until,
    response,
    told,
)

SOCKS_HELLO = b"\x05\x01\x00"


@pytest.fixture
def server(upstream: Serve) -> Upstream:
    return upstream(echo)


def connect(client: socket.socket, authority: str) -> None:
    client.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())


def socks(client: socket.socket, host: bytes, port: int, *, command: int = 1, kind: int = 3) -> int:
    """The code of the proxy's reply."""
    client.sendall(SOCKS_HELLO)
    assert read_exactly(client, 2) == b"\x05\x00"
    length = bytes([len(host)]) if kind == 3 else b""
    client.sendall(bytes([5, command, 0, kind]) + length + host + struct.pack(">H", port))
    return read_exactly(client, 10)[1]


def test_a_tunnel_by_connect(server: Upstream, open_box: Open) -> None:
    client = open_box({"ports": [server.port]}).proxy()
    connect(client, f"API.example.com:{server.port}")
    assert read_until(client, b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
    client.sendall(b"hello")
    assert read_exactly(client, 5) == b"hello"


def test_a_tunnel_by_an_old_client_that_names_its_host_once(server: Upstream, open_box: Open) -> None:
    client = open_box({"ports": [server.port]}).proxy()
    client.sendall(f"CONNECT {NAME}:{server.port} HTTP/1.0\r\n\r\n".encode())
    assert read_until(client, b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"


def test_a_tunnel_by_socks(server: Upstream, open_box: Open) -> None:
    client = open_box({"ports": [server.port]}).proxy()
    assert socks(client, NAME.encode(), server.port) == 0
    client.sendall(b"hello")
    assert read_exactly(client, 5) == b"hello"


def test_words_that_come_too_early_are_not_lost(server: Upstream, open_box: Open) -> None:
    client = open_box({"ports": [server.port]}).proxy()
    client.sendall(f"CONNECT {NAME}:{server.port} HTTP/1.1\r\nHost: {NAME}\r\n\r\nearly".encode())
    assert read_until(client, b"\r\n\r\nearly")


@pytest.mark.parametrize(
    ("authority", "why"),
    [
        ("evil.com:443", "no rule opens this name"),
        (f"{NAME}:22", "the rule opens only"),
        ("10.0.0.1:443", "no rule opens this address"),
        ("[::1]:443", "no rule opens this address"),
        ("[::ffff:127.0.0.1]:443", "no rule opens this address"),
        ("169.254.169.254:80", "no rule opens this address"),
        ("2130706433:443", "the name is no host name"),
        (f"{NAME}%00.evil.com:443", "the name is no host name"),
        (f"evil.com%00.{NAME}:443", "the name is no host name"),
        (f"user@{NAME}:443", "the name is no host name"),
    ],
)
def test_a_tunnel_elsewhere_is_refused_with_a_reason(
    authority: str, why: str, server: Upstream, open_box: Open
) -> None:
    box = open_box({"ports": [server.port]}, {"host": "*.example.com", "ports": [9]})
    client = box.proxy()
    connect(client, authority)
    status, said = told(client)
    assert status == 403
    assert said.startswith(why)
    (denial,) = box.run.end()
    assert denial.kind == "connect"
    assert (server.accepted, box.looked_up) == (0, [])


@pytest.mark.parametrize("authority", [NAME, f"{NAME}:", f"{NAME}:0", f"{NAME}:65536", f"{NAME}:+1", "/x", ""])
def test_a_tunnel_to_nowhere_is_refused(authority: str, open_box: Open) -> None:
    client = open_box({"ports": [443]}).proxy()
    connect(client, authority)
    assert b" 400 " in read_until(client, b"\r\n\r\n")


@pytest.mark.parametrize(
    "host", [b"evil.com", b"evil.com\0.example.com", b"\x00", b"", b"api.example.com\n", b"127.0.0.1", b"\xff\xfe"]
)
def test_names_by_socks_are_judged_as_all_names(host: bytes, server: Upstream, open_box: Open) -> None:
    box = open_box({"host": "*.example.com", "ports": [server.port]})
    assert socks(box.proxy(), host, server.port) == 2
    assert len(box.run.end()) == 1
    assert (server.accepted, box.looked_up) == (0, [])


def test_addresses_by_socks_are_judged_as_all_addresses(server: Upstream, open_box: Open) -> None:
    box = open_box({"host": "127.0.0.1", "ports": [server.port]})
    assert socks(box.proxy(), socket.inet_aton("127.0.0.1"), server.port, kind=1) == 0
    assert socks(box.proxy(), socket.inet_pton(socket.AF_INET6, "::ffff:127.0.0.1"), server.port, kind=4) == 0
    assert socks(box.proxy(), socket.inet_aton("127.0.0.2"), server.port, kind=1) == 2
    assert socks(box.proxy(), socket.inet_pton(socket.AF_INET6, "::1"), server.port, kind=4) == 2


@pytest.mark.parametrize("command", [2, 3, 9])
def test_nothing_but_connections_by_socks(command: int, open_box: Open) -> None:
    box = open_box({"ports": [443]})
    assert socks(box.proxy(), NAME.encode(), 443, command=command) == 7
    assert box.whys() == ["SOCKS is for TCP connections only"]


def test_a_password_is_not_taken(open_box: Open) -> None:
    client = open_box({"ports": [443]}).proxy()
    client.sendall(b"\x05\x01\x02")
    assert read_all(client) == b"\x05\xff"


def test_a_server_that_is_not_there_is_a_bad_gateway(open_box: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    box = open_box({"ports": [port]})
    client = box.proxy()
    connect(client, f"{NAME}:{port}")
    status, why = told(client)
    assert (status, why) == (502, f"{NAME}:{port} cannot be reached: Connection refused")
    assert socks(box.proxy(), NAME.encode(), port) == 4


def test_plain_requests_with_whole_addresses_go_each_to_its_host(upstream: Serve, open_box: Open) -> None:
    first, second = Recorder(), Recorder()
    one, two = upstream(first), upstream(second)
    box = open_box(
        {"ports": [one.port], "protocol": "http"},
        {"host": "b.example.com", "ports": [two.port], "protocol": "http", "methods": ["GET"]},
    )
    client = box.proxy()
    for host, port in ((NAME, one.port), ("b.example.com", two.port), (NAME, one.port)):
        client.sendall(f"GET http://{host}:{port}/x?y HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        assert response(client)[0] == 200
    assert [len(first.heads), len(second.heads)] == [2, 1]
    assert first.heads[0].startswith(f"GET /x?y HTTP/1.1\r\nHost: {NAME}:{one.port}\r\n")
    client.sendall(f"POST http://b.example.com:{two.port}/ HTTP/1.1\r\nHost: b.example.com:{two.port}\r\n\r\n".encode())
    assert told(client) == (403, "the rule allows only GET here")


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://evil.com/", "evil.com", 403),
        ("http://{NAME}:{PORT}/", "evil.com", 403),
        ("http://user@{NAME}:{PORT}/", "{NAME}", 400),
        ("https://{NAME}:{PORT}/", "{NAME}", 400),
        ("/x", "{NAME}", 400),
        ("ftp://{NAME}/", "{NAME}", 400),
    ],
)
def test_a_plain_request_elsewhere_is_refused(
    target: str, host: str, status: int, upstream: Serve, open_box: Open
) -> None:
    recorder = Recorder()
    server = upstream(recorder)
    box = open_box({"ports": [server.port], "protocol": "http"})
    values = {"NAME": NAME, "PORT": str(server.port)}
    client = box.proxy()
    client.sendall(f"GET {target.format(**values)} HTTP/1.1\r\nHost: {host.format(**values)}\r\n\r\n".encode())
    assert told(client)[0] == status
    assert recorder.heads == []


def test_plain_requests_get_through_a_rule_for_tcp(upstream: Serve, open_box: Open) -> None:
    """Programs send them to the proxy because http_proxy says so, whatever the port."""
    recorder = Recorder()
    server = upstream(recorder)
    client = open_box({"ports": [server.port]}).proxy()
    client.sendall(f"GET http://{NAME}:{server.port}/x HTTP/1.1\r\nHost: {NAME}:{server.port}\r\n\r\n".encode())
    assert response(client)[0] == 200
    assert [head.partition("\r\n")[0] for head in recorder.heads] == ["GET /x HTTP/1.1"]


def test_plain_requests_do_not_get_into_a_rule_for_tls(server: Upstream, open_box: Open) -> None:
    box = open_box({"ports": [server.port], "protocol": "tls"})
    client = box.proxy()
    client.sendall(f"GET http://{NAME}:{server.port}/ HTTP/1.1\r\nHost: {NAME}:{server.port}\r\n\r\n".encode())
    status, _, body = response(client)
    assert (status, json.loads(body)["why"]) == (403, "the rule is for tls, and this is plain http")
    assert server.accepted == 0


def test_tls_in_a_tunnel_is_checked_as_everywhere(upstream: Serve, trusted: Trusted, open_box: Open) -> None:
    server = upstream(echo, tls=trusted.authority.context(NAME))
    box = open_box({"ports": [server.port], "protocol": "tls"}, trust=trusted.client_context)
    client = box.proxy()
    connect(client, f"{NAME}:{server.port}")
    read_until(client, b"\r\n\r\n")
    client.sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert read_all(client) == b""
    assert box.whys() == ["what was sent is no TLS handshake"]
