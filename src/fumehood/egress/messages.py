"""Heads and bodies of HTTP messages, taken from a stream piece by piece, so that no body is ever held as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fumehood.egress.http1 import MOST_HEAD_BYTES, Body, MalformedMessageError, parse_chunk_size
from fumehood.egress.streams import READ_BYTES, Stream

_MOST_LINE_BYTES = 32
# What is read beyond a head or a line stays here for as long as the message before it takes.
_AHEAD_BYTES = 32 * 1024
_MOST_CHUNKS_AT_ONCE = 1024


class CutOffError(ConnectionError):
    """The other side left in the middle of a message."""


class Messages:
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
            data = await self.stream.read(_AHEAD_BYTES)
        self._buffer += data
        return bool(data)

    def _take(self, count: int) -> bytes:
        data = bytes(memoryview(self._buffer)[:count])
        del self._buffer[:count]
        return data
