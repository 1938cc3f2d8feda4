"""Messages on a byte stream: one JSON object and some raw bytes each. How a run's own services talk to the host.

Both ends use it. What comes from inside is not to be trusted, so a reader says how much it accepts.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

_PREFIX = struct.Struct("!II")
_CHUNK_BYTES = 256 * 1024

MAX_HEADER_BYTES = 1024 * 1024
MAX_BODY_BYTES = 1024 * 1024

Header = dict[str, Any]


class FrameError(ValueError):
    """The other end does not keep to the format."""


def encode(header: Header, body: bytes | memoryview = b"") -> bytes:
    return b"".join((encode_head(header, len(body)), body))


def encode_head(header: Header, body_length: int) -> bytes:
    """All of a message but its body, so that whoever sends a large one need not copy it."""
    text = json.dumps(header).encode()
    return _PREFIX.pack(len(text), body_length) + text


class Decoder:
    """Bytes in, messages out. Holds at most one unfinished message."""

    def __init__(self, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._max_body_bytes = max_body_bytes
        self._pending = bytearray()

    def feed(self, data: bytes) -> None:
        self._pending += data

    def next(self) -> tuple[Header, bytes] | None:
        """The next whole message, if there is one."""
        if len(self._pending) < _PREFIX.size:
            return None
        header_length, body_length = _PREFIX.unpack_from(self._pending)
        if header_length > MAX_HEADER_BYTES or body_length > self._max_body_bytes:
            raise FrameError(f"a message of {header_length} + {body_length} bytes is larger than the protocol allows")
        middle = _PREFIX.size + header_length
        end = middle + body_length
        if len(self._pending) < end:
            return None
        with memoryview(self._pending) as pending:
            header, body = _parse(bytes(pending[_PREFIX.size : middle])), bytes(pending[middle:end])
        del self._pending[:end]
        return header, body


def _parse(text: bytes) -> Header:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FrameError("a message has a header that is not JSON") from error
    if not isinstance(header, dict):
        raise FrameError("a message has a header that is not an object")
    return header  # pyright: ignore[reportUnknownVariableType] - JSON has text for keys


class Conversation:
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

    def close(self) -> None:
        self._stream.close()
