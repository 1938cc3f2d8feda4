"""A file as a stream of chunks, in and out: for callers that pass them on and hold no file in memory."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

import anyio

from fumehood.backends.interface import Conversation
from fumehood.errors import SandboxError
from fumehood.policy import Policy
from fumehood.sandbox.audit import SandboxAudit
from fumehood.sandbox.files import protocol
from fumehood.sandbox.files.artifacts import ArtifactTracker
from fumehood.sandbox.files.download import check_output
from fumehood.sandbox.files.errors import Converse, explained
from fumehood.sandbox.files.paths import AnyPath, sandbox_path, shown

# What is held back of a file until it is recorded; smaller files leave as a whole.
_END_BYTES = 64 * 1024


class FileStreams:
    def __init__(
        self, policy: Policy, converse: Converse, audit: SandboxAudit, artifacts: ArtifactTracker, *, keeps_tmp: bool
    ) -> None:
        self._policy, self._converse, self._keeps_tmp = policy, converse, keeps_tmp
        self._audit, self._artifacts = audit, artifacts

    async def room(self) -> tuple[int, int]:
        """Bytes of the workspace: used, and all."""
        async with explained(self._converse, "measure", "", self._policy) as talk:
            return await protocol.room(talk)

    async def write(self, path: AnyPath, chunks: AsyncIterator[bytes]) -> int:
        """How many bytes. The file is there when the last chunk is; if the chunks fail, none of it ever was."""
        place, source = sandbox_path(path, keeps_tmp=self._keeps_tmp), _ChunkSource(chunks)
        request = {"do": "write", "path": place, "executable": False, "as_program": True}
        async with self._audit.files() as audit, explained(self._converse, "write", place, self._policy) as talk:
            self._artifacts.stored(place, await protocol.store(talk, request, source))
            await audit.stored(place, source.size, source.sha256())
        return source.size

    async def read(
        self,
        path: AnyPath,
        announce: Callable[[int, str | None], None] = lambda size, sha256: None,
        *,
        digest_first: bool = False,
    ) -> AsyncGenerator[bytes, None]:
        """The content of a file that `filesystem.outputs` names. It is read once, and recorded before it has left.

        Of a large one, that it leaves is recorded before its first byte does, and its digest before its last.
        `announce` is called with its size before the first chunk, and with its SHA-256 if that is known by then: of a
        small file, and with `digest_first`, for which it is read twice.
        """
        place, limit = sandbox_path(path, keeps_tmp=self._keeps_tmp), self._policy.workspace_bytes
        async with self._audit.denials("read"):
            check_output(self._artifacts.outputs, place)
        async with (
            explained(self._converse, "read", place, self._policy) as talk,
            aclosing(_Departure(talk, place, self._audit, announce).chunks(limit, digest_first=digest_first)) as chunks,
        ):
            async for chunk in chunks:
                yield chunk


class _Departure:
    """One file on its way out."""

    def __init__(
        self, talk: Conversation, place: str, audit: SandboxAudit, announce: Callable[[int, str | None], None]
    ) -> None:
        self._talk, self._place, self._audit, self._announce = talk, place, audit, announce
        self._digest, self._passed, self._is_begun = hashlib.sha256(), 0, False

    async def chunks(self, limit: int, *, digest_first: bool) -> AsyncGenerator[bytes, None]:
        sha256: str | None = None
        if digest_first:
            _, sha256 = await protocol.digest(self._talk, self._place, limit=limit, links=True)
        try:
            async with aclosing(self._chunks(limit, sha256)) as chunks:
                async for chunk in chunks:
                    self._passed += len(chunk)
                    yield chunk
        except BaseException:
            if self._is_begun:
                with anyio.CancelScope(shield=True):
                    async with self._audit.files() as audit:
                        await audit.broken(self._place, self._passed)
            raise

    async def _chunks(self, limit: int, sha256: str | None) -> AsyncGenerator[bytes, None]:
        """All but the end as it comes; the end when the service has confirmed the whole, and it is recorded."""
        seen, size, end = 0, 0, b""
        async with aclosing(protocol.fetch_chunks(self._talk, self._place, self._digest, limit=limit)) as chunks:
            async for chunk, whole in chunks:
                size = size or whole
                seen += len(chunk)
                rest = size - seen
                if rest < 0:
                    raise self._changed()
                cut = len(chunk) if rest >= _END_BYTES else max(0, len(chunk) + rest - _END_BYTES)
                if cut:
                    await self._begin(size, sha256)
                    yield chunk[:cut]
                end += chunk[cut:]
        found = self._digest.hexdigest()
        if seen != size or sha256 not in (None, found):
            raise self._changed()
        async with self._audit.files() as audit:
            audit.fetched(self._place, size, found)
        if not self._is_begun:
            self._announce(size, found)
        self._is_begun = False
        yield end

    def _changed(self) -> SandboxError:
        return SandboxError(
            f"{shown(self._place)} changed while it was read; read it again when no program writes to it"
        )

    async def _begin(self, size: int, sha256: str | None) -> None:
        if not self._is_begun:
            async with self._audit.files() as audit:
                await audit.begun(self._place, size)
            self._announce(size, sha256)
            self._is_begun = True


class _ChunkSource:
    """Knows one chunk ahead which is the last."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks, self._next = chunks, b""
        self._digest, self.size, self._has_begun = hashlib.sha256(), 0, False

    async def next(self) -> tuple[bytes, bool]:
        if not self._has_begun:
            self._has_begun, self._next = True, await anext(self._chunks, b"")
        data = self._next
        self._next = await anext(self._chunks, b"") if data else b""
        self._digest.update(data)
        self.size += len(data)
        return data, not self._next

    def sha256(self) -> str:
        return self._digest.hexdigest()
