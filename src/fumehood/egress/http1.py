"""HTTP/1.1 messages, read so strictly that no two readers can disagree about where one ends. No I/O.

What a lenient parser repairs (folded headers, bare line feeds, two lengths, a space before a colon) is refused: repairs
differ, and the difference is how one request hides in another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from fumehood.policy.egress import canonical_header

MOST_HEAD_BYTES = 64 * 1024
_MOST_HEADERS = 128
_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_REQUEST = re.compile(rf"({_TOKEN}) ([!-~]{{1,16384}}) HTTP/1\.([01])".encode())
_RESPONSE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: ([\t -~\x80-\xff]*))?")
_NAME = re.compile(_TOKEN.encode())
_VALUE = re.compile(rb"[\t -~\x80-\xff]*")
_LENGTH = re.compile(r"[0-9]{1,15}", re.ASCII)
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
_OF_ONE_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "proxy-authorization", "proxy-authenticate", "te", "trailer"),
        *("transfer-encoding", "content-length", "upgrade", "http2-settings", "expect"),
    }
)

Headers = list[tuple[str, str]]


class MalformedMessageError(ValueError):
    """A message that could be read in two ways, or in none; the text says what is wrong and repeats nothing of it."""


class Body(Enum):
    """How the end of a body is found, where no length says so."""

    CHUNKED = "chunked"
    UNTIL_CLOSE = "until close"


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str
    version: int
    headers: Headers
    body: int | Body
    awaits_continue: bool = False
    """Its body comes when it hears `100 Continue`."""

    @property
    def host(self) -> str:
        return value_of(self.headers, "host") or ""

    @property
    def keeps_alive(self) -> bool:
        return self.version == 1 and "close" not in tokens(self.headers, "connection")


@dataclass(frozen=True, slots=True)
class Response:
    version: int
    status: int
    reason: str
    headers: Headers
    body: int | Body

    @property
    def keeps_alive(self) -> bool:
        said = tokens(self.headers, "connection")
        return "close" not in said and (self.version == 1 or "keep-alive" in said) and not self._may_hide_a_body

    @property
    def _may_hide_a_body(self) -> bool:
        """It announces one where none can be: some servers send it, some do not."""
        announced = value_of(self.headers, "content-length") or "0"
        chunked = value_of(self.headers, "transfer-encoding") is not None
        return (self.status == 204 and (chunked or announced.strip("0") != "")) or (self.status == 304 and chunked)


def parse_request(head: bytes) -> Request:
    """A request from its head, without the empty line at its end."""
    lines = _lines(head)
    match = _REQUEST.fullmatch(lines[0])
    if match is None:
        raise MalformedMessageError("its first line is no request of HTTP/1.1")
    method, target, version = match[1].decode(), match[2].decode(), int(match[3])
    headers = _headers(lines[1:])
    named = len([name for name, _ in headers if name.lower() == "host"])
    # Python's own client sends CONNECT without one, and then there is nothing that it could contradict.
    if named != 1 and not (method == "CONNECT" and named == 0):
        raise MalformedMessageError("it does not have exactly one Host header")
    body = _body(headers, version)
    expectation = value_of(headers, "expect")
    if expectation is not None and expectation.lower() != "100-continue":
        raise MalformedMessageError("it expects something else than 100-continue")
    awaits_continue = expectation is not None and version == 1 and body not in (None, 0)
    return Request(method, target, version, headers, 0 if body is None else body, awaits_continue)


def parse_response(head: bytes, method: str) -> Response:
    """A response to a request of that method, from its head."""
    lines = _lines(head)
    match = _RESPONSE.fullmatch(lines[0])
    if match is None:
        raise MalformedMessageError("its first line is no response of HTTP/1.1")
    version, status = int(match[1]), int(match[2])
    headers = _headers(lines[1:])
    body = _body(headers, version)
    if method == "HEAD" or status < 200 or status in (204, 304):
        body = 0
    reason = (match[3] or b"").decode("latin-1")
    return Response(version, status, reason, headers, Body.UNTIL_CLOSE if body is None else body)


def parse_chunk_size(line: bytes) -> int:
    """How many bytes follow. Extensions have no use but to confuse, so there are none."""
    if _CHUNK_SIZE.fullmatch(line) is None:
        raise MalformedMessageError("a chunk of its body has no plain size")
    return int(line, 16)


def forwarded(headers: Headers, without: Iterable[str] = ()) -> Headers:
    """The headers that go on to the other side: none that belong to this hop, none that Connection names."""
    dropped = _OF_ONE_HOP.union(tokens(headers, "connection"), without)
    # Some servers take X_Key for X-Key, so a header must not come back in that spelling.
    return [(name, value) for name, value in headers if canonical_header(name) not in dropped]


def framing(body: int | Body, *, always: bool) -> Headers:
    """The header that says where a body ends; with `always`, also that there is none."""
    match body:
        case Body.CHUNKED:
            return [("Transfer-Encoding", "chunked")]
        case Body.UNTIL_CLOSE:
            return []
        case int():
            return [("Content-Length", str(body))] if body or always else []


def serialise(first_line: str, headers: Headers) -> bytes:
    lines = [first_line, *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def value_of(headers: Headers, name: str) -> str | None:
    return next((value for found, value in headers if found.lower() == name), None)


def values_of(headers: Headers, name: str) -> list[str]:
    return [value for found, value in headers if found.lower() == name]


def tokens(headers: Headers, name: str) -> list[str]:
    """The words of a header that is a list, in lower case."""
    return [
        word
        for value in values_of(headers, name)
        for word in (part.strip().lower() for part in value.split(","))
        if word
    ]


def _lines(head: bytes) -> list[bytes]:
    lines = head.split(b"\r\n")
    if len(lines) > _MOST_HEADERS + 1:
        raise MalformedMessageError(f"it has more than {_MOST_HEADERS} headers")
    return lines


def _headers(lines: list[bytes]) -> Headers:
    found: Headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            raise MalformedMessageError("one of its headers is malformed")
        found.append((name.decode(), value.strip(b" \t").decode("latin-1")))
    return found


def _body(headers: Headers, version: int) -> int | Body | None:
    lengths = [value for name, value in headers if canonical_header(name) == "content-length"]
    codings = [value for name, value in headers if canonical_header(name) == "transfer-encoding"]
    if len(lengths) + len(codings) > 1:
        raise MalformedMessageError("it says more than once how long its body is")
    if codings:
        if version == 0 or codings[0].lower() != "chunked":
            raise MalformedMessageError("its Transfer-Encoding is not chunked alone")
        return Body.CHUNKED
    if lengths and _LENGTH.fullmatch(lengths[0]) is None:
        raise MalformedMessageError("its Content-Length is no number")
    return int(lengths[0]) if lengths else None
