"""The file methods of a sandbox: the caller's words, the policy, and the service inside brought together."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fumehood.backends.interface import Conversation
from fumehood.errors import UsageError
from fumehood.policy import Policy
from fumehood.policy.outputs import Outputs
from fumehood.policy.quantities import MIB
from fumehood.sandbox.audit import Journal
from fumehood.sandbox.files import exchanges
from fumehood.sandbox.files.artifacts import Collection, Seen, collect, present
from fumehood.sandbox.files.download import Download, check_output
from fumehood.sandbox.files.entries import FileEntry, Transfer
from fumehood.sandbox.files.memory import MemorySink, MemorySource
from fumehood.sandbox.files.paths import AnyPath, joined, names_folder, sandbox_path, shown
from fumehood.sandbox.files.refusals import Refusal, explain
from fumehood.sandbox.files.upload import Upload, own_name
from fumehood.sandbox.files.walking import TooManyError

MAX_READ_BYTES = 64 * MIB
_MAX_LISTED = 100_000


class Files:
    """Paths are relative to the workspace, or absolute inside the sandbox."""

    def __init__(
        self,
        policy: Policy,
        converse: Callable[[], AbstractAsyncContextManager[Conversation]],
        *,
        keeps_tmp: bool = False,
    ) -> None:
        self._policy = policy
        self._keeps_tmp = keeps_tmp
        self._outputs = Outputs(policy.filesystem.outputs)
        self._converse = converse
        self._journal = Journal()
        self._seen: Seen = {}

    async def write(
        self, path: AnyPath, data: bytes | str, *, executable: bool = False, as_program: bool = False
    ) -> None:
        """Put a file in place at once, instead of what has its name; folders on the way are made.

        With `as_program` it is written as a program would: a link is followed, a file keeps its mode, and one that the
        sandbox's user may not write is refused.
        """
        place, content = self._place(path), data.encode() if isinstance(data, str) else data
        async with self._journal.files() as entries, self._talk("write", place) as conversation:
            request = {"do": "write", "path": place, "executable": executable, "as_program": as_program}
            source = MemorySource(content)
            self._note(place, await exchanges.store(conversation, request, source))
            await entries.went_in(place, len(content), source.sha256())

    async def read(self, path: AnyPath, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """The content of a file that `filesystem.outputs` names."""
        place, sink = self._place(path), MemorySink()
        async with self._journal.telling_denials("read"):
            check_output(self._outputs, place)
        async with self._journal.files() as entries, self._talk("read", place) as conversation:
            size = await exchanges.fetch(conversation, place, sink, limit=max_bytes)
            entries.goes_out(place, size, sink.sha256())
        return sink.content()

    async def list(self, path: AnyPath = "") -> list[FileEntry]:
        """What is in a folder, by name."""
        place = self._place(path)
        async with self._talk("list", place) as conversation:
            entries = await exchanges.list_folder(conversation, place, limit=_MAX_LISTED + 1)
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
        """What has this name; a link is told as a link, unless it is to be followed."""
        place = self._place(path)
        async with self._talk("look at", place) as conversation:
            return await exchanges.stat(conversation, place, follow=follow)

    async def remove(self, path: AnyPath, *, recursive: bool = False) -> None:
        """Remove a file, a link or an empty folder; with `recursive` a folder and all that is in it."""
        place = self._place(path)
        async with self._talk("remove", place) as conversation:
            await exchanges.ask(conversation, {"do": "remove", "path": place, "recursive": recursive})

    async def mkdir(self, path: AnyPath, *, parents: bool = True) -> None:
        """Make a folder. With `parents` those above it too, and one that is there already is fine."""
        place = self._place(path)
        async with self._talk("make", place) as conversation:
            await exchanges.ask(conversation, {"do": "mkdir", "path": place, "parents": parents})

    async def upload(self, local: AnyPath, path: AnyPath) -> Transfer:
        """Copy a file or a folder of the host's in; `in/`, with the slash, is a folder that it goes into."""
        source = os.fspath(local)
        place = self._place(path)
        if names_folder(path):
            place = joined(place, own_name(source))
        async with self._journal.files() as entries, self._talk("upload", place) as conversation:
            return await Upload(conversation, source, place, self._note, entries).run()

    async def download(self, path: AnyPath, local: AnyPath, *, git: bool = False) -> Transfer:
        """Copy what `filesystem.outputs` names out, to a place where nothing is yet, or into a folder.

        What arrives is data: nothing executable, no links that lead out of it, no `.git` unless asked for.
        """
        place, limit = self._place(path), self._policy.workspace_bytes
        async with self._journal.telling_denials("download"):
            check_output(self._outputs, place, or_below=True)
        async with self._journal.files() as entries, self._talk("download", place) as conversation:
            download = Download(conversation, self._outputs, place, entries, git=git, limit=limit)
            return await download.into(os.fspath(local))

    async def _new_artifacts(self) -> Collection:
        """What has changed since the last time among the files that may leave, and was not put there by the caller."""
        async with self._talk("collect", "") as conversation:
            return await collect(conversation, self._outputs, self._policy.resources, self._seen)

    def _place(self, path: AnyPath) -> str:
        return sandbox_path(path, keeps_tmp=self._keeps_tmp)

    def _note(self, place: str, stored: exchanges.Stored) -> None:
        if self._outputs.match(place):
            self._seen[place] = (*stored.version, stored.size)

    @asynccontextmanager
    async def _talk(self, action: str, place: str) -> AsyncIterator[Conversation]:
        refusal: Refusal | None = None
        async with self._converse() as conversation:
            try:
                yield conversation
            except Refusal as error:
                refusal = error
        if refusal is not None:
            raise explain(refusal, action, place, self._policy) from None
