"""Data in memory, as where a file comes from and where it goes to."""

from __future__ import annotations

import hashlib

from fumehood.sandbox.files.exchanges import CHUNK_BYTES


class MemorySource:
    def __init__(self, data: bytes) -> None:
        self._rest = memoryview(data)
        self._digest = hashlib.sha256()

    async def next(self) -> tuple[memoryview, bool]:
        chunk, self._rest = self._rest[:CHUNK_BYTES], self._rest[CHUNK_BYTES:]
        self._digest.update(chunk)
        return chunk, not self._rest

    def sha256(self) -> str:
        return self._digest.hexdigest()


class MemorySink:
    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._digest = hashlib.sha256()

    async def take(self, data: bytes) -> None:
        self._digest.update(data)
        self._chunks.append(data)

    def sha256(self) -> str:
        return self._digest.hexdigest()

    def content(self) -> bytes:
        return b"".join(self._chunks)
