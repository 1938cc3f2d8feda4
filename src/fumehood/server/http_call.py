"""A request of HTTP to a service that the operator has named: an identity provider, a receiver of audit records.

It blocks, has one deadline for everything from the connection to the last byte, follows no redirection and reads no
more than it was told to.
"""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import SplitResult, urlsplit

from fumehood.egress.dial import host_context
from fumehood.frozen import frozen
from fumehood.host.loopback import is_loopback
from fumehood.policy.quantities import KIB

_ANSWER_BYTES = 512 * KIB


class CallFailedError(Exception):
    """There is no answer, or one that is not HTTP or too long; the text says which."""


@frozen
class HttpAnswer:
    status: int
    body: bytes


def check_url(text: str) -> str:
    """ValueError unless it is https, or http at the loopback."""
    parts = urlsplit(text)
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.username is not None or parts.fragment:
        raise ValueError("must be an address such as https://login.example/path")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError("must begin with https://; http:// is for the loopback alone")
    return text


def tls_context(ca: str | None = None) -> ssl.SSLContext:
    """Verifies the other end by the certificates in a file, or else by those of the host."""
    return host_context() if ca is None else ssl.create_default_context(cafile=ca)


class HttpCall:
    """One request in a thread that may block; `abort` ends it from another thread."""

    def __init__(self, url: str, context: ssl.SSLContext | None, *, seconds: float = 10.0) -> None:
        self._parts, self._context, self._seconds = urlsplit(url), context, seconds
        self._connection: http.client.HTTPConnection | None = None
        self._is_aborted = False

    def send(self, method: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> HttpAnswer:
        connection = self._connection = self._make()
        deadline = threading.Timer(self._seconds, self.abort)
        deadline.daemon = True
        deadline.start()
        try:
            connection.request(method, _target(self._parts), body, dict(headers or {}))
            response = connection.getresponse()
            content = response.read(_ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            # http.client forgets its socket when that is shut down from elsewhere, hence AttributeError.
            why = f"no answer within {self._seconds:g} s" if self._is_aborted else str(error) or type(error).__name__
            raise CallFailedError(f"{self._parts.hostname}: {why}") from error
        finally:
            deadline.cancel()
            connection.close()
        if len(content) > _ANSWER_BYTES or self._is_aborted:
            raise CallFailedError(f"{self._parts.hostname}: its answer is too long, or too slow")
        return HttpAnswer(response.status, content)

    def abort(self) -> None:
        self._is_aborted = True
        open_socket = None if self._connection is None else self._connection.sock
        if open_socket is not None:
            with suppress(OSError):
                open_socket.shutdown(2)

    def _make(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=self._seconds)
        return http.client.HTTPSConnection(host, port, timeout=self._seconds, context=self._context)


def _target(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
