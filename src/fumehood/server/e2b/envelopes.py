"""Connect's streams: each message has a byte of flags and four of length before it; the last one says how it ended."""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from fumehood.policy import format_size
from fumehood.policy.quantities import MIB
from fumehood.server.e2b.bodies import chunks_of, parse_object
from fumehood.server.e2b.errors import BodyError, CallFailure

MEDIA_TYPE = "application/connect+json"
MOST_BYTES = 4 * MIB
_HEAD = struct.Struct(">BI")
_END, _COMPRESSED = 2, 1


def envelope(message: Mapping[str, Any], flags: int = 0) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return _HEAD.pack(flags, len(body)) + body


def end_of_stream(failure: CallFailure | None = None) -> bytes:
    return envelope({} if failure is None else {"error": dict(failure.words)}, _END)


def refused(failure: CallFailure) -> Response:
    """Errors of a stream are its last message, not the status of the answer: clients look nowhere else."""
    return Response(end_of_stream(failure), media_type=MEDIA_TYPE)


class EnvelopeReader:
    """Messages out of bytes, without I/O. A length is believed only as far as the limit goes."""

    def __init__(self, limit: int = MOST_BYTES) -> None:
        self._limit, self._buffer = limit, bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> Mapping[str, Any] | None:
        """None as long as there is no whole one."""
        if len(self._buffer) < _HEAD.size:
            return None
        flags, length = _HEAD.unpack_from(self._buffer)
        if flags & _COMPRESSED:
            raise BodyError("unimplemented", "compressed messages are not read here; send them as they are")
        if length > self._limit:
            raise BodyError("resource_exhausted", f"a message has more than {format_size(self._limit)}")
        if len(self._buffer) < _HEAD.size + length:
            return None
        body = bytes(self._buffer[_HEAD.size : _HEAD.size + length])
        del self._buffer[: _HEAD.size + length]
        return parse_object(body)

    def finish(self) -> None:
        if self._buffer:
            raise BodyError("invalid_argument", "the body ends within a message")


async def messages_of(request: Request, limit: int, seconds: float) -> AsyncGenerator[Mapping[str, Any], None]:
    """`limit` is for all of them together."""
    reader = EnvelopeReader()
    async with aclosing(chunks_of(request, limit, seconds)) as chunks:
        async for chunk in chunks:
            reader.feed(chunk)
            while (message := reader.next()) is not None:
                yield message
    reader.finish()


async def read_envelope(request: Request) -> Mapping[str, Any]:
    """The one message of a request whose answer is a stream."""
    async with aclosing(messages_of(request, MOST_BYTES + _HEAD.size, 30.0)) as messages:
        async for message in messages:
            return message
    raise BodyError("invalid_argument", "the request has no message")
