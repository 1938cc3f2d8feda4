"""Records as messages of syslog (RFC 5424).

Syslog has no confirmation. Over a stream there is one all the same: a connection is for one batch, its sending half is
closed after that, and a receiver that has read everything closes its own; one that dies with something unread resets
the connection. A socket file for datagrams, such as /dev/log, has no such end: there the kernel has them.
"""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from urllib.parse import urlsplit

from fumehood.audit.records import Record
from fumehood.server.http_call import tls_context
from fumehood.server.shipping.chains import RecordBatch
from fumehood.server.shipping.settings import SyslogSettings
from fumehood.server.shipping.severity import Severity, severity_of
from fumehood.server.shipping.sinks import SinkError

_SECONDS = 10.0
_PRIORITIES = {Severity.INFORMATIONAL: 6, Severity.LOW: 5, Severity.MEDIUM: 4, Severity.HIGH: 3, Severity.CRITICAL: 2}
_MOST_SEQUENCE = 2**31 - 1


class SyslogSink:
    def __init__(self, settings: SyslogSettings, seconds: float = _SECONDS) -> None:
        self._settings, self._seconds = settings, seconds
        self._parts = urlsplit(settings.address)
        self._context = tls_context(settings.ca) if self._parts.scheme == "tls" else None
        self._host = _word(socket.gethostname(), 255)
        self._open: socket.socket | None = None
        self._is_aborted = False

    def send(self, batch: RecordBatch) -> None:
        messages = [self.message(record, batch) for record in batch.records]
        deadline = threading.Timer(self._seconds, self.abort)
        deadline.daemon, self._is_aborted = True, False
        try:
            with self._connect() as connection:
                self._open = connection
                deadline.start()
                if connection.type == socket.SOCK_DGRAM:
                    for message in messages:
                        connection.sendall(message)
                    return
                connection.sendall(b"".join(b"%d %b" % (len(message), message) for message in messages))
                _wait_until_read(connection)
                if self._is_aborted:  # the end that was seen is our own
                    raise TimeoutError(f"it has not read everything within {self._seconds:g} s")
        except OSError as error:
            raise SinkError(f"{self._settings.address}: {error}") from error
        finally:
            deadline.cancel()
            self._open = None

    def abort(self) -> None:
        self._is_aborted = True
        if (connection := self._open) is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def message(self, record: Record, batch: RecordBatch) -> bytes:
        priority = self._settings.facility * 8 + _PRIORITIES[severity_of(record)]
        sequence = (record.seq - 1) % _MOST_SEQUENCE + 1
        details = {"log": batch.log, "seq": str(record.seq), "tenant": batch.tenant, "hash": record.hash.hex()}
        own = "".join(f' {name}="{_escaped(value)}"' for name, value in details.items() if value is not None)
        data = f'[meta sequenceId="{sequence}"][fumehood@{self._settings.enterprise}{own}]'
        head = f"<{priority}>1 {record.time} {self._host} fumehood - {_word(record.kind, 32)} {data} "
        return head.encode("ascii") + record.body.encode("ascii", "backslashreplace")

    def _connect(self) -> socket.socket:
        if self._parts.scheme == "unix":
            return _connect_file(self._parts.path, self._seconds)
        host, port = self._parts.hostname or "", self._parts.port or 0
        plain = socket.create_connection((host, port), self._seconds)
        if self._context is None:
            return plain
        try:
            return self._context.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise


def _connect_file(path: str, seconds: float) -> socket.socket:
    """Datagrams, or a stream where the socket is for that."""
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        connection = socket.socket(socket.AF_UNIX, kind)
        connection.settimeout(seconds)
        try:
            connection.connect(path)
            return connection
        except OSError as error:
            connection.close()
            if kind == socket.SOCK_STREAM or error.errno != _OF_ANOTHER_TYPE:
                raise
    raise AssertionError("one of them is the last")


_OF_ANOTHER_TYPE = 91
"""EPROTOTYPE."""


def _wait_until_read(connection: socket.socket) -> None:
    """Until the other end has read everything, and shows it by closing; OSError if it does not."""
    if isinstance(connection, ssl.SSLSocket):
        with suppress(ssl.SSLEOFError, ssl.SSLZeroReturnError):  # closed without a goodbye of TLS, and without a reset
            connection.unwrap()
        return
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(4096):
        pass


def _word(text: str, most: int) -> str:
    """Printable ASCII without blanks, or `-`."""
    return "".join(character if 33 <= ord(character) <= 126 else "_" for character in text)[:most] or "-"


def _escaped(text: str) -> str:
    for character in ("\\", '"', "]"):
        text = text.replace(character, f"\\{character}")
    return text
