"""A file or a tree of the host's becomes one in the sandbox. Each file appears when it is complete."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import anyio.to_thread

from fumehood.backends.interface import Conversation
from fumehood.errors import UsageError
from fumehood.host.folder_tree import FolderTree, Names
from fumehood.sandbox.audit import FileAudit
from fumehood.sandbox.files import protocol
from fumehood.sandbox.files.artifacts import ArtifactTracker
from fumehood.sandbox.files.entries import Transfer, TransferCount
from fumehood.sandbox.files.local import LocalSource
from fumehood.sandbox.files.paths import joined, stays_inside

_MAX_ENTRIES = 1_000_000


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
            with _reading(self._local), FolderTree(self._local) as tree:
                await self._send_tree(tree)
        else:
            await self._send_file_alone()
        return self._tally.total()

    async def _send_file_alone(self) -> None:
        """The caller named it, so that a link is followed."""
        with _reading(self._local):
            source = LocalSource(self._local, follow=True)
        if not await self._send(source, self._local, self._path):
            raise UsageError(f"{self._local!r} is neither a file nor a folder")

    async def _send_tree(self, tree: FolderTree) -> None:
        """A program may have the tree mounted, and put a link where a folder was: no step follows one."""
        pending: list[Names] = [()]
        while pending:
            folder = pending.pop()
            await protocol.ask(self._conversation, {"do": "mkdir", "path": self._inside(folder), "parents": True})
            with _reading(self._outside(folder)):
                entries = await anyio.to_thread.run_sync(tree.entries, folder, _MAX_ENTRIES)
            for name, details in entries:
                below = (*folder, name)
                if stat.S_ISDIR(details.st_mode):
                    pending.append(below)
                elif stat.S_ISLNK(details.st_mode):
                    await self._send_link(tree, below)
                elif not stat.S_ISREG(details.st_mode) or not await self._send_file(tree, below):
                    self._tally.skip("/".join(below), "it is neither a file nor a folder nor a link")

    async def _send_link(self, tree: FolderTree, below: Names) -> None:
        with _reading(self._outside(below)):
            target = tree.target_of(below)
        path = "/".join(below)
        if not stays_inside(path, target):
            self._tally.skip(path, "it is a link that leads out of the folder, or may")
            return
        await protocol.ask(self._conversation, {"do": "link", "path": self._inside(below), "target": target})

    async def _send_file(self, tree: FolderTree, below: Names) -> bool:
        with _reading(self._outside(below)):
            source = LocalSource(tree.open_file(below))
        return await self._send(source, self._outside(below), self._inside(below))

    async def _send(self, source: LocalSource, local: str, path: str) -> bool:
        """False when it is not a regular file."""
        with _reading(local), source:
            if not source.is_regular:
                return False
            request = {"do": "write", "path": path, "executable": source.is_executable}
            stored = await protocol.store(self._conversation, request, source)
            self._tally.add(stored.size)
            self._artifacts.stored(path, stored)
            await self._audit.stored(path, stored.size, source.sha256())
        return True

    def _inside(self, below: Names) -> str:
        return joined(self._path, "/".join(below)) if below else self._path

    def _outside(self, below: Names) -> str:
        return os.path.join(self._local, *below)


@contextmanager
def _reading(local: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{local!r} cannot be read: {error.strerror or error}") from error


def own_name(local: str) -> str:
    return os.path.basename(os.path.abspath(local))
