"""`box.files`: reads, writes, lists and copies files of a sandbox, as far as its policy allows."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from fumehood.backends.interface import Conversation
from fumehood.errors import UsageError
from fumehood.policy import Bytes, Policy, read_size
from fumehood.policy.quantities import MIB
from fumehood.sandbox.audit import SandboxAudit
from fumehood.sandbox.files import protocol
from fumehood.sandbox.files.artifacts import ArtifactTracker, present
from fumehood.sandbox.files.download import Download, check_output
from fumehood.sandbox.files.entries import FileEntry, FileKind, Transfer
from fumehood.sandbox.files.errors import Converse, explained
from fumehood.sandbox.files.paths import AnyPath, joined, names_folder, sandbox_path, shown
from fumehood.sandbox.files.protocol import MemorySink, MemorySource
from fumehood.sandbox.files.streams import FileStreams
from fumehood.sandbox.files.upload import Upload, own_name
from fumehood.sandbox.files.walk import TooManyError

if TYPE_CHECKING:
    from fumehood.sandbox.files.tree_copy import TreeCopy

MAX_READ_BYTES = 64 * MIB
_MAX_LISTED = 100_000


class AsyncFiles:
    """Paths are relative to the workspace, or absolute inside the sandbox."""

    def __init__(
        self,
        policy: Policy,
        converse: Converse,
        audit: SandboxAudit,
        artifacts: ArtifactTracker,
        *,
        keeps_tmp: bool = False,
    ) -> None:
        self._policy, self._converse = policy, converse
        self._audit, self._artifacts = audit, artifacts
        self._keeps_tmp = keeps_tmp
        self._outputs = artifacts.outputs
        # For the command line and for servers alone: not methods, which the blocking API would have to have, too.
        self.copy_of_tree = self._make_tree_copy
        self.streams = FileStreams(policy, converse, audit, artifacts, keeps_tmp=keeps_tmp)
        self.gated = self._open_gate

    async def write(
        self, path: AnyPath, data: bytes | str, *, executable: bool = False, as_program: bool = False
    ) -> None:
        """Put a file in place at once, instead of what has its name; folders on the way are made.

        With `as_program` it is written as a program would: a link is followed, a file keeps its mode, and one that the
        sandbox's user may not write is refused.
        """
        place, content = self._place(path), data.encode() if isinstance(data, str) else data
        async with self._audit.files() as audit, self._talk("write", place) as conversation:
            request = {"do": "write", "path": place, "executable": executable, "as_program": as_program}
            source = MemorySource(content)
            self._artifacts.stored(place, await protocol.store(conversation, request, source))
            await audit.stored(place, len(content), source.sha256())

    async def read(self, path: AnyPath, *, max_bytes: Bytes = MAX_READ_BYTES) -> bytes:
        """The content of a file that `filesystem.outputs` names."""
        place, sink, limit = self._place(path), MemorySink(), read_size(max_bytes, "max_bytes")
        async with self._audit.denials("read"):
            check_output(self._outputs, place)
        async with self._audit.files() as audit, self._talk("read", place) as conversation:
            size = await protocol.fetch(conversation, place, sink, limit=limit)
            audit.fetched(place, size, sink.sha256())
        return sink.content()

    async def list(self, path: AnyPath = "") -> list[FileEntry]:
        """What is in a folder, by name."""
        place = self._place(path)
        async with self._talk("list", place) as conversation:
            entries = await protocol.list_folder(conversation, place, limit=_MAX_LISTED + 1)
        if len(entries) > _MAX_LISTED:
            raise UsageError(f"{shown(place)} has more than {_MAX_LISTED} entries; list them with a program in it")
        return entries

    async def outputs(self) -> dict[str, FileEntry]:
        """The files that are there and that `filesystem.outputs` names, by their paths below the workspace."""
        async with self._talk("list", "") as conversation:
            try:
                return {found.path: found.entry for found in await present(conversation, self._outputs)}
            except TooManyError as error:
                raise UsageError(f"the workspace has {error} where outputs may be; make fewer") from None

    async def stat(self, path: AnyPath, *, follow: bool = False) -> FileEntry:
        """The entry with this name; a link is returned as a link, unless `follow` is true."""
        place = self._place(path)
        async with self._talk("look at", place) as conversation:
            return await protocol.stat(conversation, place, follow=follow)

    async def remove(self, path: AnyPath, *, recursive: bool = False) -> None:
        """Remove a file, a link or an empty folder; with `recursive` a folder and all that is in it."""
        place = self._place(path)
        async with self._talk("remove", place) as conversation:
            await protocol.ask(conversation, {"do": "remove", "path": place, "recursive": recursive})

    async def rename(self, path: AnyPath, new_path: AnyPath) -> None:
        """Give a file, a link or a folder another name, at once; folders on the way to it are made.

        As with `mv -T`: a file takes the place of what has the new name, a folder that of an empty folder.
        """
        place, there = self._place(path), self._place(new_path)
        async with self._talk("rename", place) as conversation:
            entry = await protocol.rename(conversation, place, there)
        if entry.kind is FileKind.FILE:
            self._artifacts.stored(there, protocol.StoredFile(entry.size, entry.version))

    async def mkdir(self, path: AnyPath, *, parents: bool = True) -> None:
        """Make a folder. With `parents` those above it too, and one that is there already is fine."""
        place = self._place(path)
        async with self._talk("make", place) as conversation:
            await protocol.ask(conversation, {"do": "mkdir", "path": place, "parents": parents})

    async def upload(self, local: AnyPath, path: AnyPath) -> Transfer:
        """Copy a file or a folder of the host's in; `in/`, with the slash, is a folder that it goes into."""
        source = os.fspath(local)
        place = self._place(path)
        if names_folder(path):
            place = joined(place, own_name(source))
        async with self._audit.files() as audit, self._talk("upload", place) as conversation:
            return await Upload(conversation, source, place, self._artifacts, audit).run()

    async def download(self, path: AnyPath, local: AnyPath, *, git: bool = False) -> Transfer:
        """Copy what `filesystem.outputs` names out, to a place where nothing is yet, or into a folder.

        What arrives is data: nothing executable, no links that lead out of it, no `.git` unless asked for.
        """
        place, limit = self._place(path), self._policy.workspace_bytes
        async with self._audit.denials("download"):
            check_output(self._outputs, place, or_below=True)
        async with self._audit.files() as audit, self._talk("download", place) as conversation:
            download = Download(conversation, self._outputs, place, audit, git=git, limit=limit)
            return await download.into(os.fspath(local))

    def _make_tree_copy(self) -> TreeCopy:
        """A copy of a folder of the host's in the workspace, empty at first; it knows later what has changed in it."""
        from fumehood.sandbox.files.tree_copy import TreeCopy

        return TreeCopy(self._policy, self._converse, self._audit, self._artifacts)

    @asynccontextmanager
    async def _open_gate(self) -> AsyncIterator[Conversation]:
        """The file service, for a caller elsewhere."""
        from fumehood.sandbox.files.gate import FileGate

        async with (
            self._audit.denials("read"),
            self._audit.files() as audit,
            self._converse() as inner,
            FileGate(inner, audit, self._artifacts, self._outputs, keeps_tmp=self._keeps_tmp) as gate,
        ):
            yield gate

    def _place(self, path: AnyPath) -> str:
        return sandbox_path(path, keeps_tmp=self._keeps_tmp)

    def _talk(self, action: str, place: str) -> AbstractAsyncContextManager[Conversation]:
        return explained(self._converse, action, place, self._policy)
