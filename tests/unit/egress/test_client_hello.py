"""First messages of TLS handshakes, honest and not."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.egress.places import extension, made, retry, server_name

from fumehood.egress.client_hello import ClientHello, NoHelloError, asks_again, parse_hello


def honest(name: str | None = "api.example.com", protocols: list[str] | None = None) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(protocols)
    outgoing = ssl.MemoryBIO()
    session = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


NAMED = server_name(b"api.example.com")


def test_what_openssl_sends_is_understood() -> None:
    assert parse_hello(honest(protocols=["h2", "http/1.1"])) == ClientHello(
        "api.example.com", False, ("h2", "http/1.1")
    )
    assert parse_hello(honest(None)) == ClientHello(None, False, ())


def test_a_beginning_is_not_yet_a_handshake() -> None:
    hello = honest()
    assert all(parse_hello(hello[:length]) is None for length in range(len(hello)))


def test_a_handshake_may_be_cut_into_records() -> None:
    hello = made(NAMED)
    payload = hello[5:]
    pieces = [payload[:1], payload[1:7], payload[7:]]
    records = b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)
    assert parse_hello(records) == parse_hello(hello)
    many = b"".join(b"\x16\x03\x01\0\x01%c" % byte for byte in payload)
    with pytest.raises(NoHelloError, match="too many pieces"):
        parse_hello(many)


def test_a_message_is_not_read_before_the_end_of_its_record() -> None:
    """Otherwise another one could follow in it, unseen."""
    first, second = made(NAMED)[5:], made(server_name(b"evil.com"))[5:]
    record = b"\x16\x03\x01" + len(first + second).to_bytes(2, "big") + first
    assert parse_hello(record) is None
    with pytest.raises(NoHelloError, match="malformed"):
        parse_hello(record + second)


def test_what_follows_a_message_is_not_part_of_it() -> None:
    hello = made(NAMED)
    parsed = parse_hello(hello + made(server_name(b"evil.com")))
    assert parsed is not None
    assert (parsed.server_name, parsed.size) == ("api.example.com", len(hello))


@pytest.mark.parametrize("kind", [0xFE0D, 0xFFCE, 0xFD00])
def test_an_encrypted_name_is_seen(kind: int) -> None:
    hello = parse_hello(made(NAMED, extension(kind, b"anything")))
    assert hello is not None
    assert hello.encrypted


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x80\x2e\x01\x03\x01",
        b"\x16\x02\x00\x00\x05",
        b"\x17\x03\x03\x00\x05hello",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\xff\xff",
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
        made(NAMED, NAMED),
        made(NAMED, extension(23, b""), extension(23, b"")),
        made(server_name(b"")),
        made(server_name(b"x", kind=1)),
        made(extension(0, b"\x00\x0c\x00\x00\x03a.b\x00\x00\x03c.d")),
        made(extension(0, b"\x00\x06\x00\x00\x03a.bx")),
        made(extension(0, b"\x00\xff\x00\x00\x03a.b")),
        made(NAMED, after=b"x"),
    ],
)
def test_a_handshake_that_could_be_read_in_two_ways_is_refused(data: bytes) -> None:
    with pytest.raises(NoHelloError):
        parse_hello(data)


def test_an_endless_handshake_is_refused() -> None:
    with pytest.raises(NoHelloError, match="too long"):
        parse_hello(b"\x16\x03\x01\x40\x00\x01\x00\xff\xff" + b"x" * 17000)


@given(st.binary(max_size=60), st.integers(0, 200))
def test_no_bytes_break_the_parser(data: bytes, offset: int) -> None:
    hello = made(NAMED)
    for message in (data, hello[:offset] + data + hello[offset + len(data) :]):
        try:
            parse_hello(message)
        except NoHelloError:
            continue


def test_a_request_for_a_second_message_is_one_only_when_all_of_it_is_there() -> None:
    """A client that is given half of it does not answer, and both would wait for ever."""
    request = retry()
    assert all(asks_again(request[:length]) is None for length in range(len(request)))
    assert asks_again(request)
    header, message = request[:3], request[5:]
    cut = b"".join(header + len(part).to_bytes(2, "big") + part for part in (message[:40], message[40:]))
    assert all(asks_again(cut[:length]) is None for length in range(len(cut)))
    assert asks_again(cut)


def test_a_server_that_goes_on_is_known_by_its_random_bytes() -> None:
    assert asks_again(retry(b"r" * 32)) is False


def test_a_server_that_never_gets_to_the_point_is_refused() -> None:
    warning = b"\x15\x03\x03\0\x02\x01\x70"
    assert asks_again(warning * 2000) is None
    with pytest.raises(NoHelloError, match="does not get to the point"):
        asks_again(warning * 4000)
