"""Connections that are passed through: raw TCP, and TLS whose name is checked."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import ssl

import pytest
from unit.egress.places import (
    NAME,
    Box,
    Open,
    Serve,
    Trusted,
    Upstream,
    echo,
    extension,
    made,
    read_all,
    read_exactly,
    retry,
    server_name,
)

from fumehood.egress.client_hello import ACCESS_DENIED_ALERT
from fumehood.results import Denial


def says(connection: socket.socket, words: bytes) -> bytes:
    connection.sendall(words)
    return read_exactly(connection, len(words))


def test_a_program_reaches_what_a_rule_opens(upstream: Serve, open_box: Open) -> None:
    server = upstream(echo)
    box = open_box({"ports": [server.port]})
    client = box.connect(NAME, server.port)
    assert says(client, b"hello") == b"hello"
    client.shutdown(socket.SHUT_WR)
    assert read_all(client) == b""
    assert box.looked_up == [NAME]
    assert box.run.end() == ()


def test_a_canary_does_not_leave_in_pieces(upstream: Serve, open_box: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    canary = "AKIA2QXZ7MWPLTREQ3VN"
    monkeypatch.setenv("CANARY", canary)
    filters = {"canaries": [{"name": "billing", "from_env": "CANARY"}]}
    plain = Box.policy
    watched = staticmethod(lambda *rules, **more: plain(*rules, **more).override({"filters": filters}))
    monkeypatch.setattr(Box, "policy", watched)
    server = upstream(echo)
    box = open_box({"ports": [server.port]})
    client = box.connect(NAME, server.port)
    pieces = [each.encode() + b"\n" * 60 for each in canary]
    assert [says(client, piece) for piece in pieces[:-1]] == pieces[:-1]
    client.sendall(pieces[-1])
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert [alert.canary for alert in box.run.alerts()] == ["billing"]


def test_a_server_may_speak_first(upstream: Serve, open_box: Open) -> None:
    server = upstream(lambda connection: connection.sendall(b"220 welcome"))
    box = open_box({"ports": [server.port]})
    assert read_all(box.connect(NAME, server.port)) == b"220 welcome"


def test_large_data_arrives_whole_in_both_directions(upstream: Serve, open_box: Open) -> None:
    size = 32 * 1024**2

    def swallow(connection: socket.socket) -> None:
        received = len(read_all(connection))
        connection.sendall(b"%d" % received + b"x" * size)

    server = upstream(swallow)
    box = open_box({"ports": [server.port]})
    client = box.connect(NAME, server.port)
    client.sendall(b"y" * size)
    client.shutdown(socket.SHUT_WR)
    answer = read_all(client)
    assert answer[:8] == b"%d" % size
    assert len(answer) == 8 + size


def test_an_address_that_is_not_listed_is_refused(upstream: Serve, open_box: Open) -> None:
    server = upstream(echo)
    box = open_box({"ports": [server.port]})
    with contextlib.suppress(ConnectionResetError):
        assert read_all(box.connect_to("127.64.9.9", server.port)) == b""
    (denial,) = box.run.end()
    assert (denial.kind, denial.host, denial.port) == ("connect", "127.64.9.9", server.port)
    assert denial.why == "no rule opens this address"
    assert server.accepted == 0


def test_a_listed_address_is_reached_without_a_name(upstream: Serve, open_box: Open) -> None:
    server = upstream(echo)
    box = open_box({"host": "127.0.0.1", "ports": [server.port]})
    near, far = socket.socketpair()
    box.run.serve(far, ("127.0.0.1", server.port))
    assert says(near, b"hello") == b"hello"
    near.close()


def test_localhost_is_a_name_that_nobody_looks_up(upstream: Serve, open_box: Open) -> None:
    server = upstream(echo)
    box = open_box({"host": "localhost", "ports": [server.port]})
    near, far = socket.socketpair()
    box.run.serve(far, ("127.0.0.1", server.port))
    assert says(near, b"hello") == b"hello"
    near.close()


@pytest.mark.parametrize(
    ("address", "kind"),
    [("127.0.0.1", "loopback"), ("10.0.0.1", "private"), ("169.254.169.254", "credentials"), ("::1", "loopback")],
)
def test_a_name_that_leads_to_a_private_address_is_refused(
    address: str, kind: str, upstream: Serve, open_box: Open
) -> None:
    server = upstream(echo)
    box = open_box({"ports": [server.port]}, addresses={NAME: [address]}, private=False)
    assert box.sees(NAME, server.port) == b""
    (denial,) = box.run.end()
    assert denial.why.startswith(f"{NAME} leads to {address}, which is ")
    assert kind in denial.why
    assert server.accepted == 0


def test_a_name_that_leads_elsewhere_at_the_second_look_is_judged_again(upstream: Serve, open_box: Open) -> None:
    server = upstream(echo)
    rule = {"ports": [server.port], "private": True}
    box = open_box(rule, addresses={NAME: ["127.0.0.1"]})
    assert says(box.connect(NAME, server.port), b"x") == b"x"
    box.addresses[NAME] = ["169.254.169.254"]
    assert box.sees(NAME, server.port) == b""
    assert box.whys() == [f"{NAME} leads to 169.254.169.254, which is where clouds keep credentials"]


def test_only_the_addresses_that_are_allowed_are_tried(upstream: Serve, open_box: Open) -> None:
    server = upstream(echo)
    box = open_box({"ports": [server.port]}, addresses={NAME: ["0.0.0.0", "169.254.169.254", "127.0.0.1"]})
    assert says(box.connect(NAME, server.port), b"x") == b"x"


def test_a_server_that_is_not_there_is_a_reset_and_no_denial(open_box: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    box = open_box({"ports": [port]})
    assert box.sees(NAME, port) == b""
    assert box.run.end() == ()


@pytest.fixture
def tls(upstream: Serve, trusted: Trusted) -> Upstream:
    return upstream(echo, tls=trusted.authority.context(NAME))


def open_tls(open_box: Open, server: Upstream, trusted: Trusted, **fields: object) -> Box:
    return open_box({"ports": [server.port], "protocol": "tls", **fields}, trust=trusted.client_context)


def test_tls_is_passed_through_to_the_server_itself(tls: Upstream, trusted: Trusted, open_box: Open) -> None:
    box = open_tls(open_box, tls, trusted)
    assert b"Fumehood" not in box.sandbox.trust
    client = trusted.client_context().wrap_socket(box.connect(NAME, tls.port), server_hostname=NAME)
    assert says(client, b"hello") == b"hello"
    assert client.getpeercert(binary_form=True)
    client.close()
    assert box.run.end() == ()


def refused_handshake(box: Box, port: int, name: str | None) -> Denial:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with pytest.raises(ssl.SSLError, match="ACCESS_DENIED"):
        context.wrap_socket(box.connect(NAME, port), server_hostname=name)
    (denial,) = box.run.end()
    assert denial.kind == "tls"
    return denial


def test_a_handshake_for_another_server_is_refused(tls: Upstream, trusted: Trusted, open_box: Open) -> None:
    denial = refused_handshake(open_tls(open_box, tls, trusted), tls.port, "evil.com")
    assert denial.why == "the handshake names another server, evil.com"


def test_a_handshake_without_a_name_is_refused(tls: Upstream, trusted: Trusted, open_box: Open) -> None:
    denial = refused_handshake(open_tls(open_box, tls, trusted), tls.port, None)
    assert denial.why == "the handshake names no server (SNI)"


def test_a_handshake_that_hides_its_name_is_refused(tls: Upstream, trusted: Trusted, open_box: Open) -> None:
    box = open_tls(open_box, tls, trusted)
    client = box.connect(NAME, tls.port)
    client.sendall(made(server_name(NAME.encode()), extension(0xFE0D, b"hidden")))
    assert read_all(client) == ACCESS_DENIED_ALERT
    assert box.whys() == ["the handshake hides its server name (ECH)"]


def test_something_else_than_tls_is_refused(tls: Upstream, trusted: Trusted, open_box: Open) -> None:
    box = open_tls(open_box, tls, trusted)
    client = box.connect(NAME, tls.port)
    client.sendall(b"GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
    assert read_all(client) == b""
    assert box.whys() == ["what was sent is no TLS handshake"]


def test_a_handshake_in_many_small_pieces_is_one_handshake(tls: Upstream, trusted: Trusted, open_box: Open) -> None:
    box = open_tls(open_box, tls, trusted)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = trusted.client_context().wrap_bio(incoming, outgoing, server_hostname=NAME)
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    hello = outgoing.read()
    client = box.connect(NAME, tls.port)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in hello:
        client.sendall(bytes([byte]))
    while session.version() is None or not session.cipher():
        incoming.write(client.recv(65536))
        with contextlib.suppress(ssl.SSLWantReadError):
            session.do_handshake()
    assert box.run.end() == ()


CHANGE_CIPHER = b"\x14\x03\x03\0\x01\x01"
FIRST = made(server_name(NAME.encode()))


@pytest.mark.parametrize("before", [b"", b"\x15\x03\x03\0\x02\x01\x70"], ids=["at once", "after a warning"])
@pytest.mark.parametrize("pipelined", [False, True], ids=["answered", "not waited for"])
@pytest.mark.parametrize(
    ("second", "why"),
    [
        (made(server_name(b"evil.com")), "the handshake names another server, evil.com"),
        (CHANGE_CIPHER + made(server_name(b"evil.com")), "the handshake names another server, evil.com"),
        (made(), "the handshake names no server (SNI)"),
        (made(server_name(NAME.encode()), extension(0xFE0D, b"x")), "the handshake hides its server name (ECH)"),
    ],
)
def test_a_second_handshake_that_the_server_asked_for_is_judged_as_well(
    second: bytes, why: str, pipelined: bool, before: bytes, upstream: Serve, open_box: Open
) -> None:
    def serve(connection: socket.socket) -> None:
        heard.append(connection.recv(65536))
        for byte in before + retry():
            connection.sendall(bytes([byte]))
        heard.append(read_all(connection))

    heard: list[bytes] = []
    server = upstream(serve)
    box = open_box({"ports": [server.port], "protocol": "tls"})
    client = box.connect(NAME, server.port)
    client.sendall(FIRST + (second if pipelined else b""))
    if not pipelined:
        assert read_exactly(client, len(before + retry())) == before + retry()
        client.sendall(second)
    assert read_all(client).endswith(ACCESS_DENIED_ALERT)
    assert box.whys() == [why]
    server.__exit__()
    assert b"".join(heard) == FIRST


def test_a_server_that_says_nothing_to_a_handshake_is_given_up(upstream: Serve, open_box: Open) -> None:
    heard: list[bytes] = []
    server = upstream(lambda connection: heard.append(read_all(connection)))
    box = open_box({"ports": [server.port], "protocol": "tls"}, hello_seconds=0.2)
    client = box.connect(NAME, server.port)
    client.sendall(FIRST)
    assert read_all(client) == b""
    server.__exit__()
    assert heard == [FIRST]


def test_a_server_that_never_gets_to_the_point_of_its_handshake_is_given_up(upstream: Serve, open_box: Open) -> None:
    def warn(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            for _ in range(10_000):
                connection.sendall(b"\x15\x03\x03\0\x02\x01\x70" * 100)

    server = upstream(warn)
    box = open_box({"ports": [server.port], "protocol": "tls"})
    client = box.connect(NAME, server.port)
    client.sendall(FIRST)
    assert read_all(client) == b""


def test_a_client_whose_key_the_server_does_not_take_sends_another(upstream: Serve, open_box: Open) -> None:
    trusted = Trusted()
    context = trusted.authority.context(NAME)
    context.set_ecdh_curve("secp384r1")
    server = upstream(echo, tls=context)
    box = open_tls(open_box, server, trusted)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = trusted.client_context().wrap_bio(incoming, outgoing, server_hostname=NAME)
    client = box.connect(NAME, server.port)
    heard = b""
    while session.version() is None or not session.cipher():
        with contextlib.suppress(ssl.SSLWantReadError):
            session.do_handshake()
            break
        client.sendall(outgoing.read())
        heard += (data := client.recv(65536))
        incoming.write(data)
    assert hashlib.sha256(b"HelloRetryRequest").digest() in heard
    session.write(b"hello")
    client.sendall(outgoing.read())
    answer = b""
    while answer != b"hello":
        incoming.write(client.recv(65536))
        with contextlib.suppress(ssl.SSLWantReadError):
            answer += session.read()
    assert box.run.end() == ()
