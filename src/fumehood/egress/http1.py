"""HTTP/1.1 messages, read so strictly that no two readers can disagree about where one ends.

What a lenient parser repairs (folded headers, bare line feeds, two lengths, a space before a colon) is refused: repairs
differ, and the difference is how one request hides in another. Written by hand for that reason: h11 accepts four
framings that a filtering gateway must refuse, namely folded headers,
bare line feeds, a repeated Content-Length, and a Content-Length beside Transfer-Encoding.
Parsing does no I/O; `MessageReader` reads heads and bodies from a stream piece by piece and holds no body as a whole.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from enum import Enum

from fumehood.egress.streams import READ_BYTES, Stream
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
class HttpRequest:
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
class HttpResponse:
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


def parse_request(head: bytes) -> HttpRequest:
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
    return HttpRequest(method, target, version, headers, 0 if body is None else body, awaits_continue)


def parse_response(head: bytes, method: str) -> HttpResponse:
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
    return HttpResponse(version, status, reason, headers, Body.UNTIL_CLOSE if body is None else body)


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


_MOST_LINE_BYTES = 32
# What is read beyond a head or a line stays here for as long as the message before it takes.
_AHEAD_BYTES = 32 * 1024
_MOST_CHUNKS_AT_ONCE = 1024


class CutOffError(ConnectionError):
    """The other side left in the middle of a message."""


class MessageReader:
    """One side's messages, in order. What lies behind the current one waits."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._buffer = bytearray()

    @property
    def is_empty(self) -> bool:
        return not self._buffer

    async def head(self, seconds: float, *, idle_seconds: float) -> bytes | None:
        """The next head, or None if the other side has left. Its bytes have `seconds`, from the first to the last."""
        if not self._buffer and not await self._more(idle_seconds):
            return None
        searched = 0
        async with asyncio.timeout(seconds):
            while (end := self._buffer.find(b"\r\n\r\n", searched)) < 0:
                if len(self._buffer) > MOST_HEAD_BYTES:
                    raise MalformedMessageError(f"its head is longer than {MOST_HEAD_BYTES // 1024} KiB")
                searched = max(0, len(self._buffer) - 3)
                if not await self._more():
                    raise CutOffError
        if end > MOST_HEAD_BYTES:
            raise MalformedMessageError(f"its head is longer than {MOST_HEAD_BYTES // 1024} KiB")
        return self._take(end + 4)[:-4]

    async def body(self, body: int | Body) -> AsyncIterator[bytes]:
        """The payload, in pieces, whatever it is wrapped in."""
        match body:
            case Body.CHUNKED:
                async for piece in self._chunks():
                    yield piece
                await self._skip_trailers()
            case Body.UNTIL_CLOSE:
                while piece := self.rest() or await self.stream.read():
                    yield piece
            case int():
                async for piece in self._exactly(body):
                    yield piece

    def rest(self) -> bytes:
        """What has been read already of whatever follows."""
        return self._take(len(self._buffer))

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            if not self._buffer:
                await self._more()
            if joined := self._whole_chunks():
                yield joined
                continue
            if not (size := parse_chunk_size(await self._line())):
                return
            async for piece in self._exactly(size):
                yield piece
            await self._expect(b"")

    def _whole_chunks(self) -> bytes:
        """Those that have been read already, as one: to pass each on by itself costs far more than to send it did."""
        pieces: list[bytes] = []
        start = 0
        while len(pieces) < _MOST_CHUNKS_AT_ONCE and (end := self._buffer.find(b"\r\n", start)) >= 0:
            if end - start > _MOST_LINE_BYTES or not (size := parse_chunk_size(bytes(self._buffer[start:end]))):
                break
            stop = end + 2 + size
            if not self._buffer.startswith(b"\r\n", stop):
                break
            pieces.append(bytes(self._buffer[end + 2 : stop]))
            start = stop + 2
        del self._buffer[:start]
        return b"".join(pieces)

    async def _exactly(self, size: int) -> AsyncIterator[bytes]:
        while size:
            if self._buffer:
                piece = self._take(min(size, len(self._buffer)))
            elif not (piece := await self.stream.read(min(size, READ_BYTES))):
                raise CutOffError
            size -= len(piece)
            yield piece

    async def _skip_trailers(self) -> None:
        for _ in range(16):
            if not await self._line(MOST_HEAD_BYTES // 16):
                return
        raise MalformedMessageError("its body has too many trailers")

    async def _expect(self, line: bytes) -> None:
        if await self._line() != line:
            raise MalformedMessageError("a chunk of its body is longer than it says")

    async def _line(self, most: int = _MOST_LINE_BYTES) -> bytes:
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > most:
                raise MalformedMessageError("its body is malformed")
            if not await self._more():
                raise CutOffError
        line = self._take(end + 1)
        if len(line) > most or not line.endswith(b"\r\n") or b"\r" in line[:-2]:
            raise MalformedMessageError("its body is malformed")
        return line[:-2]

    async def _more(self, seconds: float | None = None) -> bool:
        async with asyncio.timeout(seconds):
            data = await self.stream.read(_AHEAD_BYTES, kept=len(self._buffer))
        self._buffer += data
        return bool(data)

    def _take(self, count: int) -> bytes:
        data = bytes(memoryview(self._buffer)[:count])
        del self._buffer[:count]
        return data
