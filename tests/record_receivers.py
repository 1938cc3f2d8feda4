"""Receivers of audit records: servers of the tests' own for syslog and webhooks, which can be slow, refuse and die."""

from __future__ import annotations

import os
import queue
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_HEAD = re.compile(rb"<(\d+)>1 (\S+) (\S+) fumehood - (\S+) (\[.*?\]\[fumehood@\d+ .*?\]) (.*)", re.DOTALL)


class SyslogReceiver:
    """Takes messages with counted octets. With `read_bytes` it dies after so many of a connection."""

    def __init__(self, listener: socket.socket, context: ssl.SSLContext | None = None) -> None:
        self._listener, self._context = listener, context
        self.messages: queue.Queue[bytes] = queue.Queue()
        self.read_bytes: int | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def next_numbers(self, count: int, seconds: float = 30) -> list[int]:
        return [number_of(self.messages.get(timeout=seconds)) for _ in range(count)]

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with suppress(OSError), connection:
                self._read(self._context.wrap_socket(connection, server_side=True) if self._context else connection)

    def _read(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file:
            if self.read_bytes is not None:
                connection.recv(self.read_bytes)
                return  # closed with the rest unread, as by a process that is killed
            while length := _length(file.read):
                message = file.read(length)
                if len(message) == length:
                    self.messages.put(message)


def _length(read: Callable[[int], bytes]) -> int:
    digits = b""
    while (character := read(1)) not in (b" ", b""):
        digits += character
    return int(digits) if digits else 0


def number_of(message: bytes) -> int:
    parts = _HEAD.fullmatch(message)
    assert parts is not None, message
    found = re.search(rb' seq="(\d+)"', parts[5])
    assert found is not None
    return int(found[1])


def listen(port: int = 0) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


def listen_file(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.fspath(path))
    listener.listen()
    return listener


class HttpReceiver:
    """`answers` are the statuses of the next requests; after those it is 204. `hold` is waited for before an answer."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()
        self.answers: queue.Queue[int] = queue.Queue()
        self.hold: threading.Event | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/records"


@contextmanager
def http_receiver(port: int = 0, answers: Iterable[int] = ()) -> Iterator[HttpReceiver]:
    """`answers` are those of the first requests, which may come before the block begins."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if receiver.hold is not None:
                receiver.hold.wait(60)
            status = 204
            with suppress(queue.Empty):
                status = receiver.answers.get_nowait()
            receiver.requests.put(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ExitStack() as stack:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        stack.callback(server.server_close)
        receiver = HttpReceiver(server.server_address[1])
        for status in answers:
            receiver.answers.put(status)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        yield receiver
