"""Where the gateway and a server could read the same bytes differently: bodies, expectations, upgrades."""

from __future__ import annotations

import base64
import hashlib
import socket

import pytest
from unit.egress.places import NAME, Box, Open, Serve, Upstream, read_all, read_exactly, read_until, response, told

GET = b"GET /public/x HTTP/1.1\r\nHost: api.example.com\r\n\r\n"
NARROW = {"protocol": "http", "methods": ["GET", "POST", "DELETE", "OPTIONS"], "paths": ["/public/**"]}
HIDDEN = b"DELETE /private HTTP/1.1\r\nHost: other.example.com\r\n\r\n"
LENGTH = b"Content-Length: %d\r\n\r\n%b" % (len(HIDDEN), HIDDEN)
CHUNKS = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)
KEY = "dGhlIHNhbXBsZSBub25jZQ=="


class Lenient:
    """A server that never reads a body, so that it takes one for the next request; otherwise a well-behaved one."""

    def __init__(self) -> None:
        self.executed: list[str] = []

    def __call__(self, connection: socket.socket) -> None:
        while True:
            head = self.next_head(connection)
            self.executed.append(head.split("\r\n")[0])
            _, announced, length = head.lower().partition("content-length:")
            if announced:
                # It answers when the body is there, which is when it could take it for something else.
                connection.recv(int(length.split()[0]), socket.MSG_PEEK | socket.MSG_WAITALL)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
            if "connection: close" in head.lower():
                connection.shutdown(socket.SHUT_WR)
                read_all(connection)
                return

    @staticmethod
    def next_head(connection: socket.socket) -> str:
        """Like many servers it skips what looks like no request, such as the size of a chunk."""
        head = ""
        while " HTTP/1.1\r\n" not in head:
            head = read_until(connection, b"\r\n").decode("latin-1")
        return head + read_until(connection, b"\r\n\r\n").decode("latin-1")


class Impatient(Lenient):
    """Refuses a body that it was asked about, and goes on with the next request as if there had been none."""

    def __call__(self, connection: socket.socket) -> None:
        while True:
            head = self.next_head(connection).lower()
            self.executed.append(head.split("\r\n")[0])
            if "expect:" in head:
                connection.sendall(b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n")
                continue
            if "content-length:" in head:
                read_exactly(connection, int(head.partition("content-length:")[2].split()[0]))
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")


@pytest.fixture
def lenient() -> Lenient:
    return Lenient()


@pytest.fixture
def server(upstream: Serve, lenient: Lenient) -> Upstream:
    return upstream(lenient)


@pytest.mark.parametrize("body", [LENGTH, CHUNKS], ids=["length", "chunks"])
@pytest.mark.parametrize("method", [b"GET", b"DELETE", b"OPTIONS"])
def test_a_body_where_the_method_has_none_is_refused(
    method: bytes, body: bytes, server: Upstream, lenient: Lenient, open_box: Open
) -> None:
    box = open_box({**NARROW, "ports": [server.port]})
    client = box.connect(NAME, server.port)
    client.sendall(GET.replace(b"GET", method)[:-2] + body)
    status, why = told(client)
    assert status == 403
    assert why.startswith("it has a body, which servers may take for another request")
    assert lenient.executed == []
    assert box.whys() == [why]


def test_a_length_of_nothing_is_no_body(server: Upstream, lenient: Lenient, open_box: Open) -> None:
    client = open_box({**NARROW, "ports": [server.port]}).connect(NAME, server.port)
    client.sendall(GET[:-2] + b"Content-Length: 0\r\n\r\n")
    assert response(client)[0] == 200
    assert lenient.executed == ["GET /public/x HTTP/1.1"]


@pytest.mark.parametrize(
    ("rule", "method"), [(NARROW, b"POST"), ({"protocol": "http"}, b"GET"), ({"protocol": "http"}, b"DELETE")]
)
def test_a_server_that_does_not_read_a_body_is_told_to_end_there(
    rule: dict[str, object], method: bytes, server: Upstream, lenient: Lenient, open_box: Open
) -> None:
    box = open_box({**rule, "ports": [server.port]})
    client = box.connect(NAME, server.port)
    client.sendall(GET.replace(b"GET", method)[:-2] + LENGTH)
    assert response(client)[0] == 200
    client = box.connect(NAME, server.port)
    client.sendall(GET)
    assert response(client)[0] == 200
    assert server.accepted == 2
    server.__exit__()
    assert lenient.executed == [f"{method.decode()} /public/x HTTP/1.1", "GET /public/x HTTP/1.1"]


def test_a_body_that_is_sent_without_waiting_for_the_word_is_no_request(upstream: Serve, open_box: Open) -> None:
    impatient = Impatient()
    server = upstream(impatient)
    client = open_box({"protocol": "http", "ports": [server.port]}).connect(NAME, server.port)
    client.sendall(GET.replace(b"GET", b"POST")[:-2] + b"Expect: 100-continue\r\n" + LENGTH)
    assert read_until(client, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert response(client)[0] == 200
    client.sendall(GET)
    assert response(client)[0] == 200
    assert impatient.executed == ["post /public/x http/1.1", "get /public/x http/1.1"]


@pytest.mark.parametrize(
    "name",
    ["X_HTTP_METHOD_OVERRIDE", "X-HTTP_Method-Override", "x.http.method.override", "X-Method-Override", "X-Verb"],
)
def test_every_spelling_of_a_header_for_another_method_is_refused(
    name: str, server: Upstream, lenient: Lenient, open_box: Open
) -> None:
    client = open_box({**NARROW, "ports": [server.port]}).connect(NAME, server.port)
    client.sendall(GET[:-2] + f"{name}: DELETE\r\n\r\n".encode())
    why = f"the header {name.lower().replace('_', '-').replace('.', '-')} is not known to leave the request as it is"
    assert told(client) == (403, why)
    assert lenient.executed == []


@pytest.mark.parametrize(
    "header",
    [
        *("X-Amz-Copy-Source: /bucket/private", "X-Goog-Copy-Source: /bucket/private", "X-Copy-From: /private"),
        *("X-Ms-Copy-Source: https://api.example.com/private", "X-Ms-Rename-Source: /private", "Destination: /private"),
        *(
            "X-Script-Name: /public",
            "X-Original-URL: /private",
            "X-Request-Uri: /private",
            "X-Forwarded-Host: evil.com",
        ),
        *("X-Envoy-Original-Dst-Host: 10.0.0.1:80", "X-Http-Destinationurl: http://evil.com/", "X-Nobody-Knows: 1"),
    ],
)
def test_a_header_that_nobody_knows_to_be_harmless_needs_a_rule_that_lists_it(
    header: str, server: Upstream, lenient: Lenient, open_box: Open
) -> None:
    name = header.partition(":")[0].lower()
    ask = GET.replace(b"GET", b"OPTIONS")[:-2] + f"{header}\r\n\r\n".encode()
    box = open_box({**NARROW, "ports": [server.port]})
    client = box.connect(NAME, server.port)
    client.sendall(ask)
    assert told(client) == (403, f"the header {name} is not known to leave the request as it is")
    (denial,) = box.run.end()
    assert denial.remedy.startswith(f"add {name} to headers of network.allow[0], if ")
    assert lenient.executed == []
    client = open_box({**NARROW, "headers": [name], "ports": [server.port]}).connect(NAME, server.port)
    client.sendall(ask)
    assert response(client)[0] == 200


@pytest.mark.parametrize("method", [b"COPY", b"MOVE", b"LINK", b"BIND", b"TRACE"])
def test_a_method_that_is_about_more_than_its_path_has_to_be_listed(
    method: bytes, server: Upstream, lenient: Lenient, open_box: Open
) -> None:
    paths = {"protocol": "http", "paths": ["/public/**"], "ports": [server.port]}
    box = open_box(paths)
    client = box.connect(NAME, server.port)
    client.sendall(GET.replace(b"GET", method))
    usual = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, QUERY"
    assert told(client) == (403, f"the rule allows only {usual} here")
    (denial,) = box.run.end()
    assert denial.remedy == f"list methods in network.allow[0], {method.decode()} among them"
    assert lenient.executed == []
    client = open_box({**paths, "methods": [method.decode()]}).connect(NAME, server.port)
    client.sendall(GET.replace(b"GET", method))
    assert response(client)[0] == 200


def test_a_header_that_some_servers_take_for_another_stays_behind(upstream: Serve, open_box: Open) -> None:
    def serve(connection: socket.socket) -> None:
        heads.append(read_until(connection, b"\r\n\r\n"))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    heads: list[bytes] = []
    server = upstream(serve)
    client = open_box({**NARROW, "ports": [server.port]}).connect(NAME, server.port)
    client.sendall(GET[:-2] + b"X_Locale: 1\r\nX-Locale: 2\r\nx.locale: 3\r\n\r\n")
    assert response(client)[0] == 200
    assert b"X-Locale: 2\r\n" in heads[0]
    assert heads[0].lower().count(b"locale") == 1


def test_a_server_that_ends_a_line_where_others_do_not_sees_no_further_header(upstream: Serve, open_box: Open) -> None:
    """Text that is taken apart by Python's own splitlines ends a line at 0x85, among others."""

    def serve(connection: socket.socket) -> None:
        lines.extend(read_until(connection, b"\r\n\r\n").decode("latin-1").splitlines())
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    lines: list[str] = []
    server = upstream(serve)
    client = open_box({**NARROW, "ports": [server.port]}).connect(NAME, server.port)
    client.sendall(GET[:-2] + b"Accept: a\x85X-HTTP-Method-Override: DELETE\r\nDNT: kept\r\n\r\n")
    assert response(client)[0] == 200
    assert lines[2:] == ["DNT: kept", ""]


@pytest.mark.parametrize(
    "query",
    [
        *(
            "_method=DELETE",
            "a=b&%5fMethod=PUT",
            "a;X-HTTP-Method-Override=PUT",
            "%20_method=DELETE",
            "+_method=DELETE",
        ),
        *("_method%00z=DELETE", "_method[]=DELETE", "_HttpMethod=DELETE", "$httpMethod=DELETE", "method=DELETE"),
        *("%255fmethod=DELETE", "_method%2500=DELETE", "a?_method=DELETE", "http.verb=DELETE", "_m%65thod=DELETE"),
    ],
)
def test_a_query_that_asks_for_another_method_is_refused(
    query: str, server: Upstream, lenient: Lenient, open_box: Open
) -> None:
    client = open_box({**NARROW, "ports": [server.port]}).connect(NAME, server.port)
    client.sendall(GET.replace(b"/x", f"/x?{query}".encode()))
    assert told(client)[0] == 403
    assert lenient.executed == []


def test_a_query_about_methods_is_an_ordinary_one(server: Upstream, open_box: Open) -> None:
    client = open_box({**NARROW, "ports": [server.port]}).connect(NAME, server.port)
    client.sendall(GET.replace(b"/x", b"/x?methods=a&method_id=b&original_url=c&a=method&verbose&methodical"))
    assert response(client)[0] == 200


UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
WEBSOCKET = GET[:-2] + UPGRADE + f"Sec-WebSocket-Key: {KEY}\r\n\r\n".encode()


def accepted(key: str = KEY) -> bytes:
    digest = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
    return b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n"


def switching(headers: bytes, served: list[bytes]) -> Serve:
    """Answers 101 with these headers, and keeps what it is then sent."""

    def serve(connection: socket.socket) -> None:
        head = read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\n" + headers + b"\r\nfirst")
        while data := connection.recv(100):
            served.append(head + data)
            connection.sendall(data.upper())

    return serve  # type: ignore[return-value]


def open_sockets(open_box: Open, server: Upstream, **fields: object) -> Box:
    return open_box({**NARROW, "websocket": True, "ports": [server.port], **fields})


GOOD = b"upgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n" + accepted()


@pytest.mark.parametrize("rule", [NARROW, {"protocol": "http"}], ids=["narrow", "wide"])
def test_a_websocket_is_one_judged_request_and_then_open(
    rule: dict[str, object], upstream: Serve, open_box: Open
) -> None:
    served: list[bytes] = []
    server = upstream(switching(GOOD, served))
    box = open_box({**rule, "websocket": True, "ports": [server.port]})
    client = box.connect(NAME, server.port)
    client.sendall(WEBSOCKET)
    assert read_until(client, b"first").startswith(b"HTTP/1.1 101 ")
    client.sendall(b"words")
    assert read_until(client, b"WORDS")
    assert b"Connection: Upgrade\r\nUpgrade: websocket" in served[0]
    refused = box.connect(NAME, server.port)
    refused.sendall(WEBSOCKET.replace(b"api.example", b"evil.example"))
    assert told(refused)[0] == 403


@pytest.mark.parametrize("rule", [NARROW, {"protocol": "http"}], ids=["narrow", "wide"])
def test_a_websocket_that_no_rule_opens_is_refused(rule: dict[str, object], upstream: Serve, open_box: Open) -> None:
    served: list[bytes] = []
    server = upstream(switching(GOOD, served))
    box = open_box({**rule, "ports": [server.port]})
    client = box.connect(NAME, server.port)
    client.sendall(WEBSOCKET + b"words")
    assert told(client) == (403, "the rule opens no WebSocket")
    (denial,) = box.run.end()
    assert denial.what == f"GET ws://{NAME}:{server.port}/public/x"
    assert denial.remedy == "set websocket: true in network.allow[0]"
    assert server.accepted == 0


@pytest.mark.parametrize(
    "headers",
    [
        b"",
        b"Upgrade: h2c\r\nConnection: Upgrade\r\n" + accepted(),
        b"Upgrade: websocket\r\n" + accepted(),
        b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
        b"Upgrade: websocket\r\nConnection: Upgrade\r\n" + accepted("AAAAAAAAAAAAAAAAAAAAAA=="),
        b"Upgrade: websocket\r\nConnection: Upgrade\r\n" + accepted() + accepted(),
    ],
)
def test_a_server_that_does_not_speak_websocket_is_no_pipe(headers: bytes, upstream: Serve, open_box: Open) -> None:
    served: list[bytes] = []
    server = upstream(switching(headers, served))
    client = open_sockets(open_box, server).connect(NAME, server.port)
    client.sendall(WEBSOCKET + HIDDEN)
    assert told(client) == (502, "the server changed the protocol in another way than it was asked to")
    server.__exit__()
    assert served == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Version: 13", b"Version: 777"),
        (KEY.encode(), b"x"),
        (b"Connection: Upgrade", b"Connection: close"),
        (b"websocket\r\n", b"websocket, h2c\r\n"),
        (b"GET", b"POST"),
    ],
)
def test_half_a_handshake_is_an_ordinary_request(old: bytes, new: bytes, upstream: Serve, open_box: Open) -> None:
    served: list[bytes] = []
    server = upstream(switching(GOOD, served))
    client = open_sockets(open_box, server).connect(NAME, server.port)
    client.sendall(WEBSOCKET.replace(old, new, 1) + HIDDEN)
    assert told(client)[0] == 502
    server.__exit__()
    assert served == []


def test_preliminary_responses_have_words_of_their_own_and_an_end(upstream: Serve, open_box: Open) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 103 anything\r\nX: y\r\n\r\n" * 1000)
        read_all(connection)

    server = upstream(serve)
    client = open_box({"protocol": "http", "ports": [server.port]}).connect(NAME, server.port)
    client.sendall(GET)
    hints, _, rest = read_all(client).rpartition(b"HTTP/1.1 502")
    assert set(hints.split(b"\r\n\r\n")) == {b"HTTP/1.1 103 Early Hints", b""}
    assert b"one preliminary response after the other" in rest


def test_a_body_behind_a_response_that_has_none_is_no_answer_to_what_comes_next(
    upstream: Serve, open_box: Open
) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 204 No Content\r\nContent-Length: 38\r\n\r\n")
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold")

    server = upstream(serve)
    client = open_box({"protocol": "http", "ports": [server.port]}).connect(NAME, server.port)
    for _ in range(2):
        client.sendall(GET)
        assert read_until(client, b"\r\n\r\n").startswith(b"HTTP/1.1 204")
    assert server.accepted == 2
