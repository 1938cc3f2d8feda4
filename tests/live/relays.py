"""A TCP port of this machine with a Unix socket behind it, with TLS in front if it is wanted."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

Context = ssl.SSLContext | None


@contextmanager
def relay_to(path: Path, context: Context = None) -> Iterator[int]:
    """The port. Those who come with the wrong certificate, or none, do not get through."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_accept, args=(server, path, context))
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def _accept(server: socket.socket, path: Path, context: Context) -> None:
    while True:
        try:
            caller, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_relay, args=(caller, path, context), daemon=True).start()


def _relay(caller: socket.socket, path: Path, context: Context) -> None:
    with suppress(OSError):
        line = context.wrap_socket(caller, server_side=True) if context else caller
        with line, socket.socket(socket.AF_UNIX) as behind:
            behind.connect(str(path))
            back = threading.Thread(target=_copy, args=(behind, line), daemon=True)
            back.start()
            _copy(line, behind)
            back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
