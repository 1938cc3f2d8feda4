"""A file or a tree of the host's becomes one in the sandbox. Each file appears when it is complete."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

import anyio
import anyio.to_thread

from fumehood.backends.interface import Conversation
from fumehood.errors import UsageError
from fumehood.sandbox.audit import FileAudit
from fumehood.sandbox.files import protocol
from fumehood.sandbox.files.artifacts import ArtifactTracker
from fumehood.sandbox.files.entries import Transfer, TransferCount
from fumehood.sandbox.files.local import LocalSource
from fumehood.sandbox.files.paths import joined, stays_inside


class Upload:
    """One upload of `local`, which becomes what `path` names."""

    def __init__(
        self,
        conversation: Conversation,
        local: str,
        path: str,
        artifacts: ArtifactTracker,
        audit: FileAudit,
    ) -> None:
        self._conversation, self._local, self._path = conversation, local, path
        self._artifacts, self._audit = artifacts, audit
        self._tally = TransferCount()

    async def run(self) -> Transfer:
        if await anyio.to_thread.run_sync(os.path.isdir, self._local):
            await self._send_tree()
        elif not await self._send_file(self._local, self._path, follow=True):
            raise UsageError(f"{self._local!r} is neither a file nor a folder")
        return self._tally.total()

    async def _send_tree(self) -> None:
        pending = [""]
        while pending:
            folder = pending.pop()
            await protocol.ask(self._conversation, {"do": "mkdir", "path": self._inside(folder), "parents": True})
            for name, mode in await anyio.to_thread.run_sync(_scan, self._outside(folder)):
                below = joined(folder, name)
                if stat.S_ISDIR(mode):
                    pending.append(below)
                elif stat.S_ISLNK(mode):
                    await self._send_link(below)
                elif not await self._send_file(self._outside(below), self._inside(below), follow=False):
                    self._tally.skip(below, "it is neither a file nor a folder nor a link")

    async def _send_link(self, below: str) -> None:
        target = os.readlink(self._outside(below))
        if not stays_inside(below, target):
            self._tally.skip(below, "it is a link that leads out of the folder, or may")
            return
        await protocol.ask(self._conversation, {"do": "link", "path": self._inside(below), "target": target})

    async def _send_file(self, local: str, path: str, *, follow: bool) -> bool:
        """False when it is no regular file."""
        try:
            with LocalSource(local, follow=follow) as source:
                if not source.is_regular:
                    return False
                request = {"do": "write", "path": path, "executable": source.is_executable}
                stored = await protocol.store(self._conversation, request, source)
                self._tally.add(stored.size)
                self._artifacts.stored(path, stored)
                await self._audit.stored(path, stored.size, source.sha256())
        except OSError as error:
            raise UsageError(f"{local!r} cannot be read: {error.strerror}") from error
        return True

    def _inside(self, below: str) -> str:
        return joined(self._path, below) if below else self._path

    def _outside(self, below: str) -> str:
        return os.path.join(self._local, below) if below else self._local


def own_name(local: str) -> str:
    return os.path.basename(os.path.abspath(local))


def _scan(folder: str) -> list[tuple[str, int]]:
    return sorted(_entries(folder))


def _entries(folder: str) -> Iterator[tuple[str, int]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                yield entry.name, entry.stat(follow_symlinks=False).st_mode
    except OSError as error:
        raise UsageError(f"{folder!r} cannot be read: {error.strerror}") from error
