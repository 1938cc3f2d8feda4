"""A published port with a server of the test's own behind it: what is held, who makes room, and what is left."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from fumehood.audit import AuditLog, Query, Trail
from fumehood.egress import Gateway
from fumehood.ingress.log import PortLog, PortRequests
from fumehood.ingress.server import MOST_CONNECTIONS, PortServer
from fumehood.policy import Policy

ENDLESS = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_000_000


class Inside:
    """Answers every connection with the same bytes, again and again if they are endless."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with ExitStack() as stack:
            while True:
                try:
                    connection = stack.enter_context(self.listener.accept()[0])
                except OSError:
                    return
                connection.recv(65536)
                threading.Thread(target=self._send, args=(connection,), daemon=True).start()

    def _send(self, connection: socket.socket) -> None:
        try:
            connection.sendall(self._answer)
            while self._answer == ENDLESS:
                connection.sendall(self._answer)
            connection.close()
        except OSError:
            connection.close()

    async def connect(self) -> socket.socket:
        return socket.create_connection(self.listener.getsockname())


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with closing(Gateway()) as made:
        yield made


def ask(port: PortServer) -> int:
    with closing(http.client.HTTPConnection(port.access.address.removeprefix("http://"), timeout=30)) as connection:
        connection.request("GET", "/", headers=port.access.headers)
        return connection.getresponse().status


def connected(port: PortServer) -> socket.socket:
    host, _, number = port.access.address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(number)), 30)


def test_a_client_that_reads_nothing_makes_the_server_inside_wait_and_no_memory_grow(gateway: Gateway) -> None:
    inside = Inside(ENDLESS)
    port = PortServer(gateway, 8000, inside.connect)
    port.open(Trail())
    with inside.listener, connected(port) as line:
        head = [f"GET / HTTP/1.1\r\nHost: {port.access.address.removeprefix('http://')}"]
        head += [f"{name}: {value}" for name, value in port.access.headers.items()]
        line.sendall(("\r\n".join(head) + "\r\n\r\n").encode())
        line.recv(1)
        assert ask(port) == 200  # others go on
        assert gateway.memory.held_bytes < 1024 * 1024
        port.close()
        with pytest.raises(ConnectionRefusedError):
            connected(port)
    assert gateway.memory.held_bytes == 0
    assert gateway.connections.count == 0


def test_clients_without_a_token_do_not_keep_out_one_that_has_it(gateway: Gateway) -> None:
    inside = Inside(b"HTTP/1.1 204 No Content\r\n\r\n")
    port = PortServer(gateway, 8000, inside.connect)
    port.open(Trail())
    with inside.listener, ExitStack() as stack:
        for _ in range(MOST_CONNECTIONS):
            stack.enter_context(connected(port))
        assert ask(port) == 204
        port.close()


def test_clients_without_a_token_take_no_connection_from_other_ports_and_sandboxes(gateway: Gateway) -> None:
    """Many users may be on this machine, and each can connect to 127.0.0.1."""
    inside = Inside(b"HTTP/1.1 204 No Content\r\n\r\n")
    gateway.connections.most = 10
    one, two = (PortServer(gateway, number, inside.connect) for number in (8000, 8001))
    for port in (one, two):
        port.open(Trail())
    with inside.listener, ExitStack() as stack:
        lines = [stack.enter_context(connected(one)) for _ in range(30)]
        assert all(line.recv(1) == b"" for line in lines[:20])
        assert ask(two) == 204
        sandbox = gateway.admit(Policy(network={"allow": [{"host": "a.example", "ports": [443]}]}), "box")
        assert sandbox.connections.why_full() == ""
        for port in (one, two):
            port.close()
    assert gateway.connections.count == 0


def test_requests_of_a_page_do_not_fill_the_audit_log() -> None:
    log = PortLog(8000)
    for number in range(3000):
        log.served(f"{number}{'X' * 60_000}", f"/{number}", 200, 1, 2)
    events = log.take()
    assert sum(len(str(event)) for event in events) < 500_000
    others = [event.count for event in events if isinstance(event, PortRequests) and event.method == "others"]
    assert sum(others) > 1000


def test_its_use_is_on_record_without_the_token_and_without_queries(gateway: Gateway, tmp_path: Path) -> None:
    inside, log = Inside(b"HTTP/1.1 204 No Content\r\n\r\n"), AuditLog.at(tmp_path)
    port = PortServer(gateway, 8000, inside.connect)
    port.open(Trail(log, "tester"))
    with inside.listener, connected(port) as line:
        line.sendall(b"GET /?guess=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert line.recv(12) == b"HTTP/1.1 403"
        assert ask(port) == 204
        port.close()
    records = [record for record in log.find(Query()) if record.kind.startswith("port.")]
    assert [record.kind for record in records] == ["port.exposed", "port.requests", "port.denied", "port.closed"]
    assert port.access.headers["X-Fumehood-Token"] not in str([record.data for record in records])
    assert records[2].data == {"port": 8000, "reason": "it is for another host", "count": 1}
