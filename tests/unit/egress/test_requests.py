"""Requests, one by one: what reaches the server, what does not, and what the program is told."""

from __future__ import annotations

import socket
import threading

import pytest
from unit.egress.places import (
    NAME,
    Box,
    Open,
    Recorder,
    Serve,
    Upstream,
    read_all,
    read_until,
    response,
    told,
)

GET = b"GET /public/x HTTP/1.1\r\nHost: api.example.com\r\n\r\n"
OK = (200, b"hi")


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def plain(upstream: Serve, recorder: Recorder) -> Upstream:
    return upstream(recorder)


def open_http(open_box: Open, server: Upstream, **fields: object) -> Box:
    return open_box({"ports": [server.port], "protocol": "http", **fields})


def ask(client: socket.socket, request: bytes) -> tuple[int, bytes]:
    client.sendall(request)
    status, _, body = response(client)
    return status, body


def test_requests_of_one_connection_go_out_one_by_one(plain: Upstream, recorder: Recorder, open_box: Open) -> None:
    box = open_http(open_box, plain)
    client = box.connect(NAME, plain.port)
    assert ask(client, b"GET /a?b=c HTTP/1.1\r\nHost: api.example.com\r\nX-Own: 1\r\n\r\n") == OK
    assert ask(client, b"POST /b HTTP/1.1\r\nHost: API.example.com.\r\nContent-Length: 4\r\n\r\nbody") == OK
    chunks = b"2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n"
    assert ask(client, b"PUT /c HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks) == OK
    assert [head.split("\r\n")[0] for head in recorder.heads] == [
        "GET /a?b=c HTTP/1.1",
        "POST /b HTTP/1.1",
        "PUT /c HTTP/1.1",
    ]
    assert recorder.bodies == [b"", b"body", b"body"]
    assert all(f"\r\nHost: {NAME}:{plain.port}\r\n" in head for head in recorder.heads)
    assert "X-Own: 1" in recorder.heads[0]
    assert plain.accepted == 1


def test_a_request_that_no_rule_allows_is_told_so(plain: Upstream, recorder: Recorder, open_box: Open) -> None:
    box = open_http(open_box, plain, methods=["GET"], paths=["/public/**"])
    client = box.connect(NAME, plain.port)
    client.sendall(b"POST /public/x HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 0\r\n\r\n")
    assert told(client) == (403, "the rule allows only GET here")
    client = box.connect(NAME, plain.port)
    client.sendall(GET.replace(b"public", b"private"))
    assert told(client) == (403, "no rule allows this path")
    first, second = box.run.end()
    assert (first.kind, first.method, first.path) == ("http", "POST", "/public/x")
    assert second.remedy == "add /private/x to paths of network.allow[0]"
    assert recorder.heads == []


def test_a_second_request_behind_an_allowed_one_is_judged_by_itself(
    plain: Upstream, recorder: Recorder, open_box: Open
) -> None:
    box = open_http(open_box, plain, methods=["GET"], paths=["/public/**"])
    client = box.connect(NAME, plain.port)
    client.sendall(GET + GET.replace(b"public", b"private") + GET)
    assert response(client)[0] == 200
    assert told(client) == (403, "no rule allows this path")
    assert len(recorder.heads) == 1


def test_another_host_on_the_same_connection_is_refused(plain: Upstream, recorder: Recorder, open_box: Open) -> None:
    box = open_http(open_box, plain)
    client = box.connect(NAME, plain.port)
    assert ask(client, GET) == OK
    client.sendall(GET.replace(b"api", b"evil"))
    assert told(client)[0] == 403
    assert len(recorder.heads) == 1


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: api.example.com\r\nHost: evil.com\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : api.example.com\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: api.example.com\r\n X: folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: api.example.com\r\nX: a\r\n\tb\r\n\r\n",
        b"GET / HTTP/1.1\nHost: api.example.com\n\nGET /x HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: api.example.com\r\nX: a\nY: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: api.example.com\r\nX: a\rY: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: api.example.com\r\nX: a\0b\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
        b"GET / a HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: api.example.com\r\n\r\n",
        b"GET /\r\n\r\n",
        b"\r\nGET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbody",
        b"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nbody",
        b"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 4, 4\r\n\r\nbody",
        b"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: +4\r\n\r\nbody",
        b"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 0x4\r\n\r\nbody",
        b"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: -1\r\n\r\nbody",
        b"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent_Length: 4\r\nContent-Length: 4\r\n\r\nbody",
        b"POST / HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: identity\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n",
        b"POST / HTTP/1.0\r\nHost: api.example.com\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: api.example.com\r\nExpect: something\r\n\r\n",
    ],
)
def test_a_request_that_could_be_read_in_two_ways_goes_nowhere(
    request_bytes: bytes, plain: Upstream, recorder: Recorder, open_box: Open
) -> None:
    box = open_http(open_box, plain)
    client = box.connect(NAME, plain.port)
    client.sendall(request_bytes)
    status, why = told(client)
    assert status == 400
    assert why.startswith("the request could be read in two ways: ")
    assert recorder.heads == []
    assert plain.accepted == 0


@pytest.mark.parametrize(
    "chunks",
    [
        b"4;ext=1\r\nbody\r\n0\r\n\r\n",
        b"4\nbody\r\n0\r\n\r\n",
        b" 4\r\nbody\r\n0\r\n\r\n",
        b"0x4\r\nbody\r\n0\r\n\r\n",
        b"3\r\nbody\r\n0\r\n\r\n",
        b"-4\r\nbody\r\n0\r\n\r\n",
        b"ffffffffffffffffffff\r\nbody\r\n0\r\n\r\n",
    ],
)
def test_a_body_in_strange_chunks_ends_the_connection(chunks: bytes, upstream: Serve, open_box: Open) -> None:
    """The server must not take what follows for a request of its own."""
    seen: list[bytes] = []
    server = upstream(lambda connection: seen.append(read_all(connection)))
    box = open_http(open_box, server)
    client = box.connect(NAME, server.port)
    client.sendall(b"POST / HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + GET)
    status, _, _ = response(client)
    assert status in (400, 502)
    box.run.end()
    server.__exit__()
    assert all(b"/public/x" not in data for data in seen)


@pytest.mark.parametrize(
    "target",
    [
        b"http://api.example.com/public/x",
        b"http://evil.com/public/x",
        b"//evil.com/public/x",
        b"api.example.com:80",
        b"*",
    ],
)
def test_a_target_that_is_no_path_is_refused(
    target: bytes, plain: Upstream, recorder: Recorder, open_box: Open
) -> None:
    box = open_http(open_box, plain, paths=["/public/**"])
    client = box.connect(NAME, plain.port)
    client.sendall(GET.replace(b"/public/x", target))
    assert told(client)[0] == 403
    assert recorder.heads == []


@pytest.mark.parametrize("size", [70_000, 10_000_000])
def test_a_huge_head_is_refused(size: int, plain: Upstream, recorder: Recorder, open_box: Open) -> None:
    box = open_http(open_box, plain)
    client = box.connect(NAME, plain.port)

    def send() -> None:
        try:
            client.sendall(b"GET / HTTP/1.1\r\nHost: api.example.com\r\nX: " + b"x" * size)
        except OSError:
            return

    sender = threading.Thread(target=send)
    sender.start()
    assert b"longer than 64 KiB" in read_all(client)
    sender.join()
    assert recorder.heads == []


def test_too_many_headers_are_refused(plain: Upstream, open_box: Open) -> None:
    box = open_http(open_box, plain)
    client = box.connect(NAME, plain.port)
    client.sendall(GET[:-2] + b"X: y\r\n" * 200 + b"\r\n")
    assert told(client)[0] == 400


def test_what_belongs_to_one_hop_stays_there(plain: Upstream, recorder: Recorder, open_box: Open) -> None:
    box = open_http(open_box, plain)
    extra = b"Connection: keep-alive, X-Private\r\nX-Private: 1\r\nProxy-Authorization: x\r\nTE: trailers\r\n"
    upgrade = b"Upgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n"
    assert ask(box.connect(NAME, plain.port), GET[:-2] + extra + upgrade) == OK
    for name in ("x-private", "proxy-authorization", "te:", "upgrade", "http2-settings", "connection"):
        assert name not in recorder.heads[0].lower()


@pytest.mark.parametrize(
    ("reply", "body"),
    [
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX: trailer\r\n\r\n",
            b"abcde",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b""),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", b"x"),
    ],
)
def test_every_kind_of_response_comes_back(reply: bytes, body: bytes, upstream: Serve, open_box: Open) -> None:
    server = upstream(Recorder(reply))
    box = open_http(open_box, server)
    client = box.connect(NAME, server.port)
    for _ in range(2):
        client.sendall(GET)
        if b" 103 " in reply:
            assert read_until(client, b"\r\n\r\n").startswith(b"HTTP/1.1 103")
        lines = read_until(client, b"\r\n\r\n")
        if b"chunked" in lines:
            # Borders of chunks mean nothing, and those that came together go on as one.
            assert read_until(client, b"0\r\n\r\n") == b"5\r\nabcde\r\n0\r\n\r\n"
        else:
            assert client.recv(100) == body if body else True
    assert server.accepted == 1


def test_a_response_without_a_length_ends_with_the_connection(upstream: Serve, open_box: Open) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nall there is")

    server = upstream(serve)
    client = open_http(open_box, server).connect(NAME, server.port)
    client.sendall(GET)
    assert read_all(client).endswith(b"\r\nConnection: close\r\n\r\nall there is")


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 1\n\nx\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
    ],
)
def test_a_response_that_could_be_read_in_two_ways_is_a_bad_gateway(
    reply: bytes, upstream: Serve, open_box: Open
) -> None:
    server = upstream(Recorder(reply))
    box = open_http(open_box, server)
    client = box.connect(NAME, server.port)
    client.sendall(GET)
    assert told(client)[0] == 502
    assert box.run.end() == ()


def test_a_head_does_not_wait_for_its_body(upstream: Serve, open_box: Open) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
        assert heard.wait(20)
        connection.sendall(b"late")

    heard = threading.Event()
    server = upstream(serve)
    client = open_http(open_box, server).connect(NAME, server.port)
    client.sendall(GET)
    assert read_until(client, b"\r\n\r\n").startswith(b"HTTP/1.1 200 OK")
    heard.set()
    assert read_until(client, b"late") == b"late"


def test_a_response_that_breaks_off_is_not_mistaken_for_a_whole_one(upstream: Serve, open_box: Open) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")

    server = upstream(serve)
    client = open_http(open_box, server).connect(NAME, server.port)
    client.sendall(GET)
    head = read_until(client, b"half")
    assert b"Content-Length: 100" in head
    assert read_all(client) == b""


def test_a_server_that_closed_in_between_is_connected_to_anew(upstream: Serve, open_box: Open) -> None:
    def once(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        connection.shutdown(socket.SHUT_RDWR)
        ended.release()

    ended = threading.Semaphore(0)
    server = upstream(once)
    client = open_http(open_box, server).connect(NAME, server.port)
    for _ in range(3):
        assert ask(client, GET) == OK
        assert ended.acquire(timeout=20)
    assert server.accepted == 3


def test_a_client_that_waits_for_a_word_before_its_body_gets_it(upstream: Serve, open_box: Open) -> None:
    def serve(connection: socket.socket) -> None:
        assert b"Expect" not in read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = read_until(connection, b"body")
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    server = upstream(serve)
    client = open_http(open_box, server).connect(NAME, server.port)
    client.sendall(b"POST / HTTP/1.1\r\nHost: api.example.com\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
    assert read_until(client, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert ask(client, b"body") == (200, b"body")


def test_a_large_body_is_streamed_in_both_directions(upstream: Serve, open_box: Open) -> None:
    size = 16 * 1024**2

    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        left = size
        while left:
            left -= len(connection.recv(min(left, 65536)))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        connection.sendall(b"x" * size)

    server = upstream(serve)
    client = open_http(open_box, server).connect(NAME, server.port)
    client.sendall(b"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: %d\r\n\r\n" % size)
    client.sendall(b"y" * size)
    status, _, body = response(client)
    assert (status, len(body)) == (200, size)


def test_an_answer_that_comes_before_the_body_is_through_is_passed_on(upstream: Serve, open_box: Open) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        read_all(connection)

    server = upstream(serve)
    client = open_http(open_box, server).connect(NAME, server.port)
    client.sendall(b"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 1000000\r\n\r\nsome")
    assert response(client)[0] == 413
    assert read_all(client) == b""


def test_an_old_client_gets_an_old_response(upstream: Serve, open_box: Open) -> None:
    server = upstream(Recorder(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"))
    client = open_http(open_box, server).connect(NAME, server.port)
    client.sendall(b"GET / HTTP/1.0\r\nHost: api.example.com\r\n\r\n")
    head, _, body = read_all(client).partition(b"\r\n\r\n")
    assert body == b"hi"
    assert b"chunked" not in head


def test_a_head_response_keeps_its_length(upstream: Serve, open_box: Open) -> None:
    server = upstream(Recorder(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"))
    client = open_http(open_box, server).connect(NAME, server.port)
    for _ in range(2):
        client.sendall(b"HEAD / HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
        assert b"\r\nContent-Length: 500\r\n" in read_until(client, b"\r\n\r\n")


WEBSOCKET = GET[:-2] + (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def test_a_refused_websocket_leaves_an_ordinary_connection(plain: Upstream, recorder: Recorder, open_box: Open) -> None:
    box = open_http(open_box, plain, methods=["GET"], paths=["/public/**"], websocket=True)
    client = box.connect(NAME, plain.port)
    assert ask(client, WEBSOCKET) == OK
    assert ask(client, GET) == OK
    assert plain.accepted == 2
    client.sendall(GET.replace(b"public", b"private"))
    assert told(client)[0] == 403
    assert len(recorder.heads) == 2
