"""Requests to a server's HTTP API, for what needs no open sandbox. They block: for command lines and worker threads."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import quote, urlencode, urlsplit

from fumehood.errors import DeniedError, FumehoodError, LostError, QuotaError, SandboxError, UsageError

_SECONDS = 60
JsonAnswer = Any
Query = Mapping[str, str]


class ServerRequests:
    """`host` is the name that the server is asked for, if that is not the one in its URL."""

    def __init__(self, url: str, key: str, context: ssl.SSLContext | None = None, host: str | None = None) -> None:
        self._url, self._key, self._context, self._host = url, key, context, host

    def call(self, method: str, *path: str, body: object = None, query: Query | None = None) -> JsonAnswer:
        """The answer of a request with JSON; what the server has against it is raised."""
        content = None if body is None else json.dumps(body)
        with self._answer(method, path, content, {"Content-Type": "application/json"}, query) as response:
            return _parsed(response.read())

    def post_bytes(self, *path: str, content: bytes) -> JsonAnswer:
        headers = {"Content-Type": "application/octet-stream"}
        with self._answer("POST", path, content, headers, None) as response:
            return _parsed(response.read())

    def is_there(self) -> bool:
        """Whether anything accepts connections at this address."""
        connection = self._connection()
        try:
            connection.connect()
        except OSError:
            return False
        finally:
            connection.close()
        return True

    def upload(
        self, *path: str, chunks: Iterable[bytes], query: Query | None = None, headers: Query | None = None
    ) -> JsonAnswer:
        """PUT a body of unknown length."""
        sent = {"Content-Type": "application/octet-stream", "Transfer-Encoding": "chunked", **(headers or {})}
        with self._answer("PUT", path, iter(chunks), sent, query) as response:
            return _parsed(response.read())

    @contextmanager
    def download(self, *path: str, query: Query | None = None) -> Iterator[http.client.HTTPResponse]:
        """The answer to a GET, to be read in pieces; LostError if it breaks off."""
        with self._answer("GET", path, None, {}, query) as response:
            yield response

    @contextmanager
    def _answer(
        self,
        method: str,
        path: tuple[str, ...],
        body: str | bytes | Iterator[bytes] | None,
        headers: Query,
        query: Query | None,
    ) -> Iterator[http.client.HTTPResponse]:
        place = "/v1/" + "/".join(quote(part, safe="") for part in path)
        target = f"{place}?{urlencode(query)}" if query else place
        own = {"Authorization": f"Bearer {self._key}", **({"Host": self._host} if self._host else {})}
        connection = self._connection()
        try:
            _send(connection, method, target, body, {**own, **headers})
            response = connection.getresponse()
            if response.status >= 400:
                raise _refusal(self._url, response.status, _parsed(response.read()))
            yield response
        except (OSError, http.client.HTTPException) as error:
            raise LostError(f"the server at {self._url} does not answer: {error}") from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._url)
        host = parts.hostname or "127.0.0.1"
        if parts.scheme != "https":
            return http.client.HTTPConnection(host, parts.port or 80, timeout=_SECONDS)
        return http.client.HTTPSConnection(host, parts.port or 443, timeout=_SECONDS, context=self._context)


def _send(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    body: str | bytes | Iterator[bytes] | None,
    headers: Query,
) -> None:
    """A server that refuses a body answers before it has read all of it, and that answer is the news."""
    try:
        connection.request(method, target, body, headers, encode_chunked="Transfer-Encoding" in headers)
    except (BrokenPipeError, ConnectionResetError):
        if connection.sock is None:
            raise


def _parsed(content: bytes) -> JsonAnswer:
    try:
        return json.loads(content) if content else {}
    except ValueError as error:
        raise SandboxError("the server's answer is not JSON; is it a Fumehood server?") from error


def _refusal(url: str, status: int, problem: JsonAnswer) -> FumehoodError:
    given = cast("dict[str, Any]", problem) if isinstance(problem, dict) else {}
    detail = str(given.get("detail", f"the server answered {status}"))
    if status == 429 and "quota" in given:
        most, used = float(given.get("limit") or 0), float(given.get("used") or 0)
        return QuotaError(detail, quota=str(given["quota"]), most=most, used=used, resets=given.get("resets_at"))
    if status in (401, 403):
        return DeniedError(f"{url} refuses: {detail}")
    if status == 410:
        return LostError(detail)
    return UsageError(detail) if status < 500 else SandboxError(f"{url}: {detail}")
