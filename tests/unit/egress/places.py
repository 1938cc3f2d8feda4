"""Both ends of a gateway, real and on loopback: servers outside, and a program's connections inside."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any, Self

from fumehood.egress import PROXY_PORT, Gateway, GatewayLimits
from fumehood.egress.certificates import CertificateAuthority
from fumehood.policy import Policy
from fumehood.policy.egress import Address
from fumehood.results import Denial

Place = tuple[str, int]
NAME = "api.example.com"
TIMEOUT = 20


class Trusted:
    """An authority that the host trusts."""

    def __init__(self) -> None:
        self.authority = CertificateAuthority()

    def client_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.authority.pem.decode())
        context.set_alpn_protocols(["http/1.1"])
        return context


class Upstream:
    """A server on loopback; `serve` gets each connection in a thread, in TLS if there is a context."""

    def __init__(
        self,
        serve: Callable[[socket.socket], None],
        *,
        tls: ssl.SSLContext | None = None,
        place: Place = ("127.0.0.1", 0),
    ) -> None:
        self._serve, self._tls = serve, tls
        self._listener = socket.create_server(place, backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(TIMEOUT)

    def _spawn(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            self._open.add(connection)
            self._spawn(self._handle, connection)

    def _handle(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError, ValueError):
            if self._tls is not None and connection.recv(1, socket.MSG_PEEK):
                wrapped = self._tls.wrap_socket(connection, server_side=True)
                self._open.add(wrapped)
                connection = wrapped
            self._serve(connection)
        connection.close()


class Box:
    """One sandbox's way out, used as a program inside would."""

    def __init__(
        self,
        *rules: dict[str, Any],
        addresses: dict[str, Sequence[str]] | None = None,
        secrets: Sequence[dict[str, Any]] = (),
        trust: Callable[[], ssl.SSLContext] | None = None,
        private: bool = True,
        **limits: Any,
    ) -> None:
        self.addresses = dict(addresses or {})
        self.looked_up: list[str] = []
        options: dict[str, Any] = {} if trust is None else {"trust": trust}
        self.gateway = Gateway(resolver=self._resolve, limits=GatewayLimits(**limits), **options)
        self.sandbox = self.gateway.admit(self.policy(*rules, secrets=secrets, private=private), "box")
        self.run = self.sandbox.open_run("run")
        self._listening: set[Place] = set()
        self._clients: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        self.sandbox.close()
        self.gateway.close()

    @staticmethod
    def policy(*rules: dict[str, Any], secrets: Sequence[dict[str, Any]] = (), private: bool = True) -> Policy:
        allow = [{"host": NAME, "private": private, **rule} for rule in rules]
        return Policy(network={"allow": allow}, secrets=list(secrets))

    async def _resolve(self, name: str) -> Sequence[Address]:
        self.looked_up.append(name)
        return [ip_address(text) for text in self.addresses.get(name, ["127.0.0.1"])]

    def ask(self, name: str, kind: int = 1) -> tuple[int, bytes]:
        """The code and the data of the name server's answer."""
        reply = self.run.answer(question(name, kind))
        assert reply is not None
        return reply[3] & 0xF, reply[len(question(name, kind)) + 12 :]

    def address(self, name: str) -> str:
        code, data = self.ask(name)
        assert code == 0
        return socket.inet_ntoa(data)

    def connect(self, host: str, port: int) -> socket.socket:
        """A TCP connection as a program makes it: look the name up, connect to the answer."""
        return self.connect_to(self.address(host), port)

    def connect_to(self, address: str, port: int) -> socket.socket:
        if (address, port) not in self._listening:
            self._listening.add((address, port))
            self.run.listen([socket.create_server((address, port), backlog=512)])
        client = socket.socket()
        self._clients.append(client)
        client.settimeout(TIMEOUT)
        client.connect((address, port))
        return client

    def sees(self, host: str, port: int) -> bytes:
        """What a program reads from a connection, if it says nothing; a reset may come before it even connects."""
        try:
            return read_all(self.connect(host, port))
        except ConnectionResetError:
            return b""

    def proxy(self) -> socket.socket:
        """A connection to the proxy; its port may be taken on this machine, so it comes by the other door."""
        near, far = socket.socketpair()
        near.settimeout(TIMEOUT)
        self._clients.append(near)
        self.run.serve(far, ("127.0.0.1", PROXY_PORT))
        return near

    def secure(self, client: socket.socket, name: str | None = NAME, **options: Any) -> ssl.SSLSocket:
        """TLS as a program speaks it that trusts the bundle of its sandbox."""
        context = ssl.create_default_context(cadata=self.sandbox.trust.decode())
        if protocols := options.get("protocols"):
            context.set_alpn_protocols(protocols)
        if name is None:
            context.check_hostname = False
        wrapped = context.wrap_socket(client, server_hostname=name)
        self._clients.append(wrapped)
        return wrapped

    def first_denial(self) -> Denial:
        """Of something that the gateway notices in its own time, after the program has gone on."""
        for _ in range(TIMEOUT * 100):
            if denials := self.run.log.denials():
                return denials[0]
            time.sleep(0.01)
        raise AssertionError("nothing was refused")

    def whys(self) -> list[str]:
        """Why things were refused, so far."""
        return [denial.why for denial in self.run.log.denials()]


Open = Callable[..., Box]
Serve = Callable[..., Upstream]


def question(name: str, kind: int = 1, identity: int = 7) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode("latin-1") for label in name.split(".")) + b"\0"
    return struct.pack(">6H", identity, 0x0100, 1, 0, 0, 0) + labels + struct.pack(">HH", kind, 1)


def extension(kind: int, data: bytes) -> bytes:
    return kind.to_bytes(2, "big") + len(data).to_bytes(2, "big") + data


def server_name(name: bytes, kind: int = 0) -> bytes:
    entry = bytes([kind]) + len(name).to_bytes(2, "big") + name
    return extension(0, len(entry).to_bytes(2, "big") + entry)


def made(*extensions: bytes, after: bytes = b"") -> bytes:
    """A handshake with exactly these extensions."""
    block = b"".join(extensions)
    body = (
        b"\x03\x03" + b"r" * 32 + b"\0" + b"\0\x02\x13\x01" + b"\x01\0" + len(block).to_bytes(2, "big") + block + after
    )
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message


def retry(random: bytes = hashlib.sha256(b"HelloRetryRequest").digest()) -> bytes:
    """A server's HelloRetryRequest, which asks for a key of another group. With other bytes, its ordinary answer."""
    extensions = extension(43, b"\x03\x04") + extension(51, b"\0\x18")
    body = b"\x03\x03" + random + b"\0" + b"\x13\x01" + b"\0" + len(extensions).to_bytes(2, "big") + extensions
    message = b"\x02" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x03" + len(message).to_bytes(2, "big") + message


def read_all(connection: socket.socket) -> bytes:
    """Everything until the other side ends, in whatever sandbox."""
    received = bytearray()
    with contextlib.suppress(ConnectionResetError, ssl.SSLEOFError):
        while data := connection.recv(65536):
            received += data
    return bytes(received)


def read_until(connection: socket.socket, end: bytes) -> bytes:
    received = b""
    while not received.endswith(end):
        data = connection.recv(1)
        if not data:
            raise EOFError
        received += data
    return received


def read_exactly(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        data = connection.recv(count - len(received))
        if not data:
            raise EOFError
        received += data
    return received


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


class Recorder:
    """An HTTP server that keeps what it gets and answers each request with `reply`."""

    def __init__(self, reply: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi") -> None:
        self.reply = reply
        self.heads: list[str] = []
        self.bodies: list[bytes] = []

    def __call__(self, connection: socket.socket) -> None:
        while True:
            head = read_until(connection, b"\r\n\r\n").decode("latin-1")
            self.heads.append(head)
            self.bodies.append(self._body(connection, head.lower()))
            connection.sendall(self.reply)

    @staticmethod
    def _body(connection: socket.socket, head: str) -> bytes:
        if "transfer-encoding: chunked" in head:
            body = b""
            while size := int(read_until(connection, b"\r\n"), 16):
                body += read_exactly(connection, size)
                read_exactly(connection, 2)
            read_exactly(connection, 2)
            return body
        length = next(
            (line.partition(":")[2] for line in head.split("\r\n") if line.startswith("content-length:")), "0"
        )
        return read_exactly(connection, int(length))


def response(client: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """One response: its status, headers and body."""
    lines = read_until(client, b"\r\n\r\n").decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:-2])}
    status = int(lines[0].split(" ")[1])
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(read_until(client, b"\r\n"), 16):
            body += read_exactly(client, size)
            read_exactly(client, 2)
        read_exactly(client, 2)
    elif "content-length" in headers:
        body = read_exactly(client, int(headers["content-length"]))
    else:
        body = read_all(client) if status >= 200 else b""
    return status, headers, body


def told(client: socket.socket) -> tuple[int, str]:
    """The status and reason of a refusal, which ends the connection."""
    status, _, body = response(client)
    assert read_all(client) == b""
    return status, json.loads(body)["why"]
