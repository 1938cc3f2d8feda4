"""Credentials that come back are blackened, and nothing that is seen of that tells what they are."""

from __future__ import annotations

import queue
import socket
import ssl
import string
from collections.abc import Iterator

import pytest
from unit.egress.places import NAME, Box, Open, Serve, Trusted, read_all, read_exactly, read_until

from fumehood.egress.credentials import Credentials, Redactor
from fumehood.policy import Policy
from fumehood.policy.secret import PROCESS_SECRETS

VALUE = b"tok_9f3ac71be08d4426b5"
SECRET = {"name": "TOKEN", "from_env": "TOKEN", "inject": {"host": NAME}}
GET = f"GET /x HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode()


def guesses() -> Iterator[tuple[bytes, bytes]]:
    """Each beginning of the value, and others of the same length."""
    for length in range(1, len(VALUE)):
        right = VALUE[:length]
        yield right, b"\0" * length
        yield right, right[:-1] + bytes([right[-1] ^ 1])
        yield right, bytes([right[0] ^ 1]) + right[1:]


def sizes(pieces: list[bytes], *values: bytes) -> list[int]:
    redactor = Redactor(values)
    return [*(len(redactor.feed(piece)) for piece in pieces), len(redactor.end())]


@pytest.mark.parametrize("before", [0, 1, 100, 16384])
def test_how_much_is_passed_on_tells_nothing_of_the_value(before: int) -> None:
    for right, wrong in guesses():
        for cut in range(len(right) + 1):
            seen = [
                sizes([b"-" * before + guess[:cut], guess[cut:], b"-" * before, guess], VALUE)
                for guess in (right, wrong)
            ]
            assert seen[0] == seen[1]


def test_how_much_is_passed_on_does_not_tell_how_long_the_value_is() -> None:
    pieces = [b"-" * count for count in (1, 20, 500, 3, 70)]
    assert len({tuple(sizes(pieces, b"v" * length)) for length in range(6, 64)}) == 1


@pytest.mark.parametrize(
    ("values", "data"),
    [
        ([b"tok_123456", b"tok_123456_write_9999"], b"tok_123456_write_9999"),
        ([b"tok_123456_write_9999", b"write_9999_and_more"], b"tok_123456_write_9999_and_more"),
        ([b"abcdef", b"defghi"], b"abcdefghi"),
        ([b"defghi", b"abcdef"], b"abcdefghi"),
        ([b"abcabc"], b"abcabcabc"),
        ([b"secret-one", b"cret-o"], b"SECRET-ONE"),
    ],
)
def test_values_that_lie_across_each_other_leave_nothing(values: list[bytes], data: bytes) -> None:
    text = b"x" * 50 + data + b"y" * 100
    for cut in range(len(text)):
        redactor = Redactor(values)
        pieces = [redactor.feed(text[:cut]), redactor.feed(text[cut:]), redactor.end()]
        assert b"".join(pieces) == b"x" * 50 + b"*" * len(data) + b"y" * 100
    redactor = Redactor(values)
    single = [redactor.feed(bytes([byte])) for byte in text]
    assert b"".join([*single, redactor.end()]) == b"x" * 50 + b"*" * len(data) + b"y" * 100
    assert Redactor(values).head(text) == b"x" * 50 + b"*" * len(data) + b"y" * 100


def test_a_line_that_has_ended_does_not_wait() -> None:
    redactor = Redactor([VALUE])
    assert redactor.feed(b"data: " + VALUE + b"\n\n") == b"data: " + b"*" * len(VALUE) + b"\n\n"
    assert redactor.feed(b"data: " + VALUE[:10]) == b""
    assert redactor.feed(VALUE[10:] + b"\n") == b"data: " + b"*" * len(VALUE) + b"\n"
    assert redactor.end() == b""


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", VALUE.decode())


def open_tls(open_box: Open, port: int, trusted: Trusted) -> tuple[Box, ssl.SSLSocket]:
    rule = {"ports": [port], "protocol": "tls", "methods": ["GET"]}
    box = open_box(rule, secrets=[SECRET], trust=trusted.client_context)
    return box, box.secure(box.connect(NAME, port))


def borders(client: ssl.SSLSocket) -> set[int]:
    """Where the records of a body end, as a program sees them."""
    read_until(client, b"\r\n\r\n")
    found: set[int] = set()
    at = 0
    while data := client.recv(65536):
        at += len(data)
        found.add(at)
    return found


def test_a_program_cannot_spell_a_credential_from_where_records_end(
    token: None, upstream: Serve, trusted: Trusted, open_box: Open
) -> None:
    """The server stores what it is given; each block ends in another guess of the next character."""
    characters = string.ascii_lowercase + string.digits + "_"
    known, block = VALUE[:5], 16384

    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        blocks = [(known + character.encode()).rjust(block, b"-") for character in characters]
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (block * len(blocks))
        )
        for each in blocks:
            connection.sendall(each)

    server = upstream(serve, tls=trusted.authority.context(NAME))
    _, client = open_tls(open_box, server.port, trusted)
    client.sendall(GET[:-2] + b"Connection: close\r\n\r\n")
    seen = borders(client)
    assert max(seen) == block * len(characters)
    assert not {block * (index + 1) - len(known) - 1 for index in range(len(characters))} & seen


def test_an_event_of_a_stream_arrives_before_the_next_one(
    token: None, upstream: Serve, trusted: Trusted, open_box: Open
) -> None:
    """The server sends each event only when the client has answered the one before, as tools over event streams do."""
    heard: queue.Queue[bool] = queue.Queue()

    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for event in (b"data: 1\n\n", b"data: 2\n\n", b"data: 3\n\n"):
            connection.sendall(b"%x\r\n%b\r\n" % (len(event), event))
            assert heard.get(timeout=20)
        connection.sendall(b"0\r\n\r\n")

    server = upstream(serve, tls=trusted.authority.context(NAME))
    _, client = open_tls(open_box, server.port, trusted)
    client.sendall(GET)
    read_until(client, b"\r\n\r\n")
    for number in (b"1", b"2", b"3"):
        assert read_exactly(client, 14) == b"9\r\ndata: " + number + b"\n\n\r\n"
        heard.put(True)
    assert read_exactly(client, 5) == b"0\r\n\r\n"


def test_a_value_that_is_replaced_while_a_server_answers_does_not_come_back(
    upstream: Serve, trusted: Trusted, open_box: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: queue.Queue[bool] = queue.Queue()
    replaced: queue.Queue[bool] = queue.Queue()

    def serve(connection: socket.socket) -> None:
        head = read_until(connection, b"\r\n\r\n")
        asked.put(True)
        assert replaced.get(timeout=20)
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(head), head))

    monkeypatch.setenv("TOKEN", "old-secret-value-1111")
    server = upstream(serve, tls=trusted.authority.context(NAME))
    box, client = open_tls(open_box, server.port, trusted)
    client.sendall(GET[:-2] + b"Connection: close\r\n\r\n")
    assert asked.get(timeout=20)
    monkeypatch.setenv("TOKEN", "new-secret-value-2222")
    rule = {"ports": [server.port], "protocol": "tls", "methods": ["GET"]}
    box.sandbox.change(box.policy(rule, secrets=[SECRET]))
    replaced.put(True)
    seen = read_all(client)
    assert b"Bearer " + b"*" * 21 in seen
    assert b"secret" not in seen


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_value_outside_ascii_is_blackened_as_it_is_sent_and_as_utf8(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = "tök_9f3ac71bé"
    monkeypatch.setenv("TOKEN", value)
    policy = Policy(secrets=[SECRET], network={"allow": [{"host": NAME, "ports": [443]}]})
    redactor, data = Credentials(policy, PROCESS_SECRETS).redactor(policy.secrets), value.encode(encoding)
    assert redactor.head(b"<" + data + b">") == b"<" + b"*" * len(data) + b">"
    single = [redactor.feed(bytes([byte])) for byte in b"<" + data + b">"]
    assert b"".join([*single, redactor.end()]) == b"<" + b"*" * len(data) + b">"
