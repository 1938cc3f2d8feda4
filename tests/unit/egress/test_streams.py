"""What one connection takes of the others: their turn, and the host's memory."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable

import pytest
from unit.egress.places import NAME, Open, Serve, Trusted, question, read_exactly, read_until, response

from fumehood.egress import streams
from fumehood.egress.http1 import Body, MalformedMessageError, MessageReader
from fumehood.egress.streams import PlainStream, TlsStream

pytestmark = pytest.mark.anyio
GET = f"GET /x HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode()


async def turns_of_others(work: Callable[[], Awaitable[object]], times: int) -> int:
    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    turns = 0
    other = asyncio.ensure_future(take_turns())
    for _ in range(times):
        await work()
    other.cancel()
    return turns


@pytest.mark.parametrize("way", ["read", "write"])
async def test_a_socket_that_is_always_ready_lets_others_have_their_turn(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_MOST_SECONDS_AT_ONCE", -1)
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        far.sendall(b"x" * 100)
        stream = PlainStream(near)
        work = (lambda: stream.read(1)) if way == "read" else (lambda: stream.write(b"x"))
        assert await turns_of_others(work, 100) >= 100


def test_a_flood_of_questions_lets_others_have_their_turn(open_box: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """By DNS over TCP, which every sandbox with a rule has."""
    monkeypatch.setattr(streams, "_MOST_SECONDS_AT_ONCE", -1)
    box = open_box({"ports": [443]})
    query = question("other.example")
    near, far = socket.socketpair()
    seen: list[int] = []

    def look() -> None:
        seen.append(sum(denial.count for denial in box.run.log.denials()))
        if seen[-1] < 100:
            asyncio.get_running_loop().call_soon(look)

    with near:
        near.settimeout(20)
        near.sendall((len(query).to_bytes(2, "big") + query) * 100)
        box.run.serve(far, ("127.0.0.1", 53))
        box.gateway.call(look)
        read_exactly(near, 100 * (2 + len(query)))
    assert len(set(seen)) > 50


async def body_of(data: bytes, cut: int) -> list[bytes]:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        messages = MessageReader(PlainStream(near))
        far.sendall(data[:cut])
        reading = asyncio.ensure_future(_collect(messages))
        await asyncio.sleep(0)
        far.sendall(data[cut:])
        far.shutdown(socket.SHUT_WR)
        return await reading


async def _collect(messages: MessageReader) -> list[bytes]:
    return [piece async for piece in messages.body(Body.CHUNKED)]


async def test_chunks_that_came_together_are_passed_on_together() -> None:
    data = b"".join(b"1\r\n%c\r\n" % byte for byte in b"abcdefgh") + b"A\r\n\r\n01234\r\n0\r\n0\r\n\r\n"
    for cut in range(len(data)):
        assert b"".join(await body_of(data, cut)) == b"abcdefgh\r\n01234\r\n0"
    assert await body_of(data, len(data)) == [b"abcdefgh\r\n01234\r\n0"]


@pytest.mark.parametrize(
    "wrong",
    [
        b"1\r\nxx\r\n",
        b"1 \r\nx\r\n",
        b"1;a=b\r\nx\r\n",
        b"-1\r\nx\r\n",
        b"\r\n",
        b"1\nx\r\n",
        b"0" * 40 + b"1\r\nx\r\n",
    ],
)
async def test_a_chunk_that_is_malformed_is_found_behind_others(wrong: bytes) -> None:
    data = b"1\r\na\r\n" * 3 + wrong + b"0\r\n\r\n"
    for cut in range(len(data)):
        with pytest.raises(MalformedMessageError):
            await body_of(data, cut)


async def test_little_is_read_ahead_of_what_is_waited_for() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        far.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            far.send(GET)
            while True:
                far.send(b"x" * 4096)
        messages = MessageReader(PlainStream(near))
        assert await messages.head(20, idle_seconds=20) == GET[:-4]
        assert len(messages.rest()) <= 32 * 1024
        assert len(await messages.stream.read()) <= 64 * 1024


def test_a_server_that_leaves_without_a_farewell_is_called_again(
    upstream: Serve, trusted: Trusted, open_box: Open
) -> None:
    gone: queue.Queue[bool] = queue.Queue()

    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        connection.shutdown(socket.SHUT_RDWR)
        gone.put(True)

    server = upstream(serve, tls=trusted.authority.context(NAME))
    box = open_box({"ports": [server.port], "protocol": "tls", "methods": ["GET"]}, trust=trusted.client_context)
    client = box.secure(box.connect(NAME, server.port))
    for _ in range(2):
        client.sendall(GET)
        status, _, body = response(client)
        assert (status, body) == (200, b"hi")
        assert gone.get(timeout=20)
    assert server.accepted == 2


def test_bytes_that_nobody_asked_for_are_counted(upstream: Serve, trusted: Trusted, open_box: Open) -> None:
    answered: queue.Queue[bool] = queue.Queue()
    sent: queue.Queue[bool] = queue.Queue()

    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        assert answered.get(timeout=20)
        connection.sendall(b"x" * 50_000)
        sent.put(True)

    server = upstream(serve, tls=trusted.authority.context(NAME))
    rule = {"ports": [server.port], "protocol": "tls", "methods": ["GET"], "max_bytes": 40_000}
    box = open_box(rule, trust=trusted.client_context)
    client = box.secure(box.connect(NAME, server.port))
    client.sendall(GET)
    assert response(client)[0] == 200
    answered.put(True)
    assert sent.get(timeout=20)
    client.sendall(GET)
    assert response(client)[0] == 403


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda each: each.name)
@pytest.mark.parametrize("behind", [b"x", b"\x17\x03\x03\x00\x10" + b"a" * 16], ids=["a byte", "a record"])
async def test_what_comes_behind_the_end_of_tls_is_not_waited_for(
    behind: bytes, version: ssl.TLSVersion, trusted: Trusted
) -> None:
    """In one segment with the end, so that it is there when the end is read."""
    context = trusted.authority.context(NAME)
    context.maximum_version = version
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        stream = TlsStream(PlainStream(near), context, server_name=None, server=True)
        client = threading.Thread(target=leave_with_more, args=(far, behind))
        client.start()
        await stream.handshake()
        await asyncio.to_thread(client.join)
        assert await stream.read() == b"last words"
        assert await stream.read() == b""


def leave_with_more(far: socket.socket, behind: bytes) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    tls = context.wrap_bio(incoming, outgoing)
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            far.sendall(outgoing.read())
            incoming.write(far.recv(65536))
    tls.write(b"last words")
    with contextlib.suppress(ssl.SSLError):
        tls.unwrap()
    far.sendall(outgoing.read() + behind)
