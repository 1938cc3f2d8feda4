"""Bodies of requests, bounded: in bytes as they come, in bytes when they are unpacked, and in time."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any, cast

from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Send

from fumehood.guest.contract.frames import is_shallow
from fumehood.policy import format_size
from fumehood.policy.quantities import MIB
from fumehood.server.e2b.errors import BodyError

JSON_BYTES = 8 * MIB
_SILENCE_SECONDS = 30.0
_MESSAGE_SECONDS = 30.0
_DEEPEST_JSON = 16
_UNPACKED_AT_ONCE = 256 * 1024
_READ_AFTER_REFUSAL, _REST_SECONDS = 4 * MIB, 2.0
_GZIP = 31


def bounded(receive: Receive, limit: int, seconds: float = _SILENCE_SECONDS) -> Receive:
    """`receive` of a body with at most `limit` bytes, which never stays away for longer than `seconds`."""
    taken = 0

    async def take() -> Message:
        nonlocal taken
        try:
            async with asyncio.timeout(seconds):
                message = await receive()
        except TimeoutError:
            raise BodyError("deadline_exceeded", f"nothing of the body came for {seconds:g} seconds") from None
        taken += len(message.get("body", b""))
        if taken > limit:
            raise BodyError("resource_exhausted", f"the body has more than {format_size(limit)}")
        return message

    return take


class BodyUpload:
    """The body of one request, whoever reads it. A little that is left of it is read before the answer begins: a
    connection that ends under a client that still writes takes the answer with it."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send, self._is_read = receive, send, False

    async def receive(self) -> Message:
        message = await self._receive()
        self._is_read = self._is_read or not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._read_rest()
        await self._send(message)

    async def _read_rest(self) -> None:
        left = _READ_AFTER_REFUSAL
        with suppress(TimeoutError):
            async with asyncio.timeout(_REST_SECONDS):
                while not self._is_read and left > 0:
                    left -= len((await self.receive()).get("body", b""))


async def chunks_of(request: Request, limit: int, seconds: float = _SILENCE_SECONDS) -> AsyncGenerator[bytes, None]:
    """The body as it comes, without empty chunks. OSError if the client hangs up."""
    try:
        async for chunk in Request(request.scope, bounded(request.receive, limit, seconds)).stream():
            if chunk:
                yield chunk
    except ClientDisconnect:
        raise ConnectionAbortedError("the client hung up") from None


async def unpacked(chunks: AsyncGenerator[bytes, None], limit: int) -> AsyncGenerator[bytes, None]:
    """Of gzip, a little at a time: what a small body claims to hold is never made at once."""
    unpacking, size = zlib.decompressobj(_GZIP), 0
    try:
        async for chunk in chunks:
            while chunk:
                data = unpacking.decompress(chunk, _UNPACKED_AT_ONCE)
                size += len(data)
                if size > limit:
                    raise BodyError("resource_exhausted", f"the body has more than {format_size(limit)} unpacked")
                if data:
                    yield data
                chunk = unpacking.unconsumed_tail
                if unpacking.unused_data:
                    raise BodyError("invalid_argument", "something follows the end of the gzip body")
    except zlib.error:
        raise BodyError("invalid_argument", "the body is not gzip, though its header says so") from None
    if not unpacking.eof:
        raise BodyError("invalid_argument", "the gzip body ends too early")


async def read_json(request: Request, limit: int = JSON_BYTES) -> Mapping[str, Any]:
    """An object; an empty body is an empty one."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise BodyError("unimplemented", "compressed messages are not read here; send them as they are")
    try:
        async with asyncio.timeout(_MESSAGE_SECONDS):
            body = b"".join([chunk async for chunk in chunks_of(request, limit)])
    except TimeoutError:
        raise BodyError("deadline_exceeded", f"the body did not arrive within {_MESSAGE_SECONDS:g} seconds") from None
    return parse_object(body)


def parse_object(body: bytes) -> Mapping[str, Any]:
    if not is_shallow(body, _DEEPEST_JSON):
        raise BodyError("invalid_argument", "the message is nested too deeply")
    try:
        value = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise BodyError("invalid_argument", "the message is not JSON") from None
    if not isinstance(value, dict):
        raise BodyError("invalid_argument", "the message is not a JSON object")
    return cast("Mapping[str, Any]", value)
