"""A file as a stream of chunks, in and out: for callers that pass them on and hold no file in memory."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from fumehood.errors import SandboxError
from fumehood.policy import Policy
from fumehood.sandbox.audit import SandboxAudit
from fumehood.sandbox.files import protocol
from fumehood.sandbox.files.artifacts import ArtifactTracker
from fumehood.sandbox.files.download import check_output
from fumehood.sandbox.files.errors import Converse, explained
from fumehood.sandbox.files.paths import AnyPath, sandbox_path, shown


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
        self, path: AnyPath, digested: Callable[[int, str], None] = lambda size, sha256: None
    ) -> AsyncGenerator[bytes, None]:
        """The content of a file that `filesystem.outputs` names. It is digested and recorded before a byte leaves.

        `digested` is called with its size and its SHA-256 before the first chunk.
        """
        place, limit = sandbox_path(path, keeps_tmp=self._keeps_tmp), self._policy.workspace_bytes
        async with self._audit.denials("read"):
            check_output(self._artifacts.outputs, place)
        async with explained(self._converse, "read", place, self._policy) as talk:
            size, sha256 = await protocol.digest(talk, place, limit=limit, links=True)
            async with self._audit.files() as audit:
                audit.fetched(place, size, sha256)
            digested(size, sha256)
            digest = hashlib.sha256()
            async for chunk in protocol.fetch_chunks(talk, place, limit=size):
                digest.update(chunk)
                yield chunk
        if digest.hexdigest() != sha256:
            raise SandboxError(f"{shown(place)} changed while it was read; read it again when no program writes to it")


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
