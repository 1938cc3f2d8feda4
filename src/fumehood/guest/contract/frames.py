"""Messages on a byte stream: one JSON object and some raw bytes each. How a run's own services talk to the host.

Both ends use it. What comes from inside is not to be trusted, so a reader says how much it accepts.
"""

from __future__ import annotations

import json
import re
import select
import socket
import struct
from typing import Any

_PREFIX = struct.Struct("!II")
_CHUNK_BYTES = 256 * 1024

MAX_HEADER_BYTES = 1024 * 1024
MAX_BODY_BYTES = 1024 * 1024
MAX_DEPTH = 80
"""Deepest nesting of a header. The parser is recursive, and an application may have raised the recursion limit."""
_FLAT = 64
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)

Header = dict[str, Any]


class FrameError(ValueError):
    """The other end does not keep to the format."""


def encode(header: Header, body: bytes | memoryview = b"") -> bytes:
    return b"".join((encode_head(header, len(body)), body))


def encode_head(header: Header, body_length: int) -> bytes:
    """All of a message but its body, so that the sender of a large one need not copy it."""
    text = json.dumps(header).encode()
    return _PREFIX.pack(len(text), body_length) + text


class Decoder:
    """Bytes in, messages out. Holds at most one unfinished message."""

    def __init__(self, max_body_bytes: int = MAX_BODY_BYTES, max_header_bytes: int = MAX_HEADER_BYTES) -> None:
        self._max_body_bytes, self._max_header_bytes = max_body_bytes, max_header_bytes
        self._pending = bytearray()
        self._skipped = 0

    def feed(self, data: bytes) -> None:
        skipped = min(self._skipped, len(data))
        self._skipped -= skipped
        self._pending += data[skipped:]

    def announced(self) -> int | None:
        """The size of the next message, header and body, as soon as its first bytes are there."""
        lengths = self._lengths()
        return None if lengths is None else sum(lengths)

    def skip(self) -> None:
        """Never mind the message that was announced: what has not arrived of it is not kept when it does."""
        size = _PREFIX.size + (self.announced() or 0)
        self._skipped = max(0, size - len(self._pending))
        del self._pending[:size]

    def next(self) -> tuple[Header, bytes] | None:
        """The next whole message, if there is one."""
        message = self.next_raw()
        return None if message is None else (parse(message[0]), message[1])

    def next_raw(self) -> tuple[bytes, bytes] | None:
        """Likewise, with a header that is not parsed yet."""
        lengths = self._lengths()
        if lengths is None:
            return None
        middle = _PREFIX.size + lengths[0]
        end = middle + lengths[1]
        if len(self._pending) < end:
            return None
        with memoryview(self._pending) as pending:
            header, body = bytes(pending[_PREFIX.size : middle]), bytes(pending[middle:end])
        del self._pending[:end]
        return header, body

    def _lengths(self) -> tuple[int, int] | None:
        if len(self._pending) < _PREFIX.size:
            return None
        header_length, body_length = _PREFIX.unpack_from(self._pending)
        if header_length > self._max_header_bytes or body_length > self._max_body_bytes:
            raise FrameError(f"a message of {header_length} + {body_length} bytes is larger than the protocol allows")
        return header_length, body_length


def parse(text: bytes) -> Header:
    if not is_shallow(text, MAX_DEPTH):
        raise FrameError("a message has a header that is nested too deeply")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FrameError("a message has a header that is not JSON") from error
    if not isinstance(header, dict):
        raise FrameError("a message has a header that is not an object")
    return header  # pyright: ignore[reportUnknownVariableType] - JSON has text for keys


def is_shallow(text: bytes, most: int) -> bool:
    """Whether a JSON text is nested no deeper than this, seen without parsing it."""
    if text.count(b"[") + text.count(b"{") <= min(most, _FLAT):
        return True
    depth = 0
    for match in _BRACKETS.finditer(text):
        bracket = match[0]
        depth += 1 if bracket in (b"[", b"{") else -1 if bracket in (b"]", b"}") else 0
        if depth > most:
            return False
    return True


class FrameSocket:
    """The guest's end, which waits. The host is trusted: bodies may have any size."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._decoder = Decoder(max_body_bytes=0xFFFFFFFF)

    def send(self, header: Header, body: bytes | memoryview = b"") -> None:
        self._stream.sendall(encode_head(header, len(body)))
        if body:
            self._stream.sendall(body)

    def receive(self) -> tuple[Header, bytes] | None:
        """None when the host has hung up."""
        while True:
            message = self._decoder.next()
            if message is not None:
                return message
            data = self._stream.recv(_CHUNK_BYTES)
            if not data:
                return None
            self._decoder.feed(data)

    def wait_readable(self, seconds: float) -> bool:
        """Whether there is something to receive, or the host has hung up, within this time."""
        poll = select.poll()
        poll.register(self._stream, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def close(self) -> None:
        self._stream.close()
