"""The workspace becomes a snapshot, and a snapshot the workspace: through the file service, on every backend.

A content is digested here as it is written, so that no sandbox can claim one that another has. If the sandbox was given
contents before, the service computes digests inside first: what is the same is not sent again. It does so, too, if a
session is open, whose process might write: then a file must have the digest inside with which it arrives.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import anyio.to_thread

from fumehood.backends.interface import Conversation
from fumehood.concurrency.threads import SideThread
from fumehood.errors import DeniedError, UsageError
from fumehood.policy import Policy, format_size
from fumehood.policy.filesystem import Outputs
from fumehood.sandbox.files import protocol
from fumehood.sandbox.files.artifacts import ArtifactTracker
from fumehood.sandbox.files.entries import FileEntry, FileKind
from fumehood.sandbox.files.paths import shown
from fumehood.sandbox.files.walk import TooManyError, Walk, WalkEntry
from fumehood.snapshots.content import CheckedContent
from fumehood.snapshots.manifest import EntryError, SnapshotEntry, SnapshotManifest
from fumehood.snapshots.store import SnapshotStore, StoreWriter

T = TypeVar("T")
_MAX_ENTRIES = 200_000
_EVERYTHING = Outputs(("**",))
_NOT_SAVED = (FileKind.PIPE, FileKind.SOCKET, FileKind.DEVICE)
# Files up to this size travel many at a time: a round trip takes longer than the file.
_SMALL_BYTES, _TOGETHER_BYTES, _TOGETHER = 256 * 1024, 4 * 1024 * 1024, 64


class WorkspaceSaver:
    """Takes the workspace as it is. Programs that run meanwhile are an error if they change what is being read."""

    def __init__(
        self,
        conversation: Conversation,
        writer: StoreWriter,
        known: Mapping[str, int],
        policy: Policy,
        *,
        is_still: bool,
    ) -> None:
        """`known` are contents that this sandbox was given before and that the store has, with their sizes.

        If it `is_still`, no process is there that could change a file while it is read.
        """
        self._conversation, self._batch, self._known, self._policy = conversation, writer.batch, known, policy
        self._asks_for_digests = bool(known) or not is_still
        self._taken: dict[str, FileEntry] = {}
        self.skipped: list[str] = []

    async def save(self) -> SnapshotManifest:
        walk = Walk(
            self._conversation,
            _EVERYTHING,
            git=True,
            max_entries=_MAX_ENTRIES,
            max_bytes=self._policy.workspace_bytes,
            digests=self._asks_for_digests,
        )
        try:
            async for found in walk.below(""):
                self._take(found)
        except TooManyError as error:
            raise UsageError(f"the workspace has {error}; it cannot be saved before something is removed") from None
        await self._fetch_unknown()
        try:
            return SnapshotManifest.of(map(_described, self._taken.items()))
        except EntryError as error:
            raise UsageError(f"the workspace cannot be saved: {error}") from None

    def _take(self, found: WalkEntry) -> None:
        if found.entry.kind in _NOT_SAVED:
            self.skipped.append(found.path)
        elif found.reason is not None:
            raise UsageError(
                f"the workspace cannot be saved: {shown(found.path)}: {found.reason}; change that, or remove it"
            )
        elif found.entry.kind is FileKind.FILE and self._asks_for_digests and found.entry.sha256 is None:
            raise _changed(found.path)
        else:
            self._taken[found.path] = found.entry

    async def _fetch_unknown(self) -> None:
        paths = self._unknown()
        await self._fetch_small([path for path in paths if self._taken[path].size <= _SMALL_BYTES])
        for path in paths:
            if self._taken[path].size > _SMALL_BYTES:
                await self._fetch(path)

    async def _fetch_small(self, paths: Sequence[str]) -> None:
        """Many at a time; a group is digested and written while the next one is fetched."""
        with SideThread() as thread:
            digests: Callable[[], Awaitable[list[str]]] | None = None
            previous: tuple[list[str], list[bytes]] = [], []
            for group in [*_grouped(paths, lambda path: self._taken[path].size), []]:
                contents = await protocol.fetch_together(self._conversation, [*map(self._expected, group)])
                if digests is not None:
                    for path, content, digest in zip(*previous, await digests(), strict=True):
                        self._compare(path, len(content), digest)
                previous, digests = (group, contents), thread.begin(partial(self._add_all, contents))

    def _add_all(self, contents: Sequence[bytes]) -> list[str]:
        return [*map(self._batch.add, contents)]

    def _unknown(self) -> list[str]:
        """Paths of files that have to be read, one for each content as far as digests are known."""
        unknown: dict[str, str] = {}
        for path, entry in self._taken.items():
            if entry.kind is FileKind.FILE and (entry.sha256 is None or self._known.get(entry.sha256) != entry.size):
                unknown.setdefault(entry.sha256 or f"at {path}", path)
        return list(unknown.values())

    def _expected(self, path: str) -> tuple[str, int]:
        return path, self._taken[path].size

    def _compare(self, path: str, size: int, digest: str) -> None:
        entry = self._taken[path]
        if size != entry.size or entry.sha256 not in (None, digest):
            raise _changed(path)
        self._taken[path] = replace(entry, sha256=digest)

    async def _fetch(self, path: str) -> None:
        draft, limit = self._batch.begin(), self._taken[path].size

        async def take(data: bytes) -> None:
            await anyio.to_thread.run_sync(draft.write, data)

        try:
            size = await protocol.fetch_for_saving(self._conversation, path, take, limit=limit)
        except BaseException:
            self._batch.drop(draft)
            raise
        self._compare(path, size, await anyio.to_thread.run_sync(self._batch.finish, draft))


class WorkspaceRestorer:
    """Fills an empty workspace with a snapshot. What is damaged is an error before a program sees any of it."""

    def __init__(self, conversation: Conversation, store: SnapshotStore, artifacts: ArtifactTracker) -> None:
        self._conversation, self._store, self._artifacts = conversation, store, artifacts

    async def restore(self, manifest: SnapshotManifest) -> None:
        folders = [entry for entry in manifest.entries if entry.kind == "folder"]
        await self._ask({"do": "mkdir", "path": entry.path, "parents": False} for entry in folders)
        await self._write_small([entry for entry in manifest.files if entry.size <= _SMALL_BYTES], manifest.id)
        for entry in manifest.files:
            if entry.size > _SMALL_BYTES:
                await self._write(entry, manifest.id)
        links = (entry for entry in manifest.entries if entry.kind == "link")
        await self._ask({"do": "link", "path": entry.path, "target": entry.target} for entry in links)
        # Last, and from the inside out: a folder may be one that cannot be written to.
        await self._ask({"do": "mode", "path": entry.path, **_attributes(entry)} for entry in reversed(folders))

    async def _ask(self, requests: Iterable[Mapping[str, Any]]) -> None:
        for group in _grouped([*requests], lambda request: len(request["path"])):
            await protocol.ask_together(self._conversation, [(request, b"") for request in group])

    async def _write_small(self, entries: Sequence[SnapshotEntry], identifier: str) -> None:
        """Many at a time; a group is read and digested while the one before is written."""
        with SideThread() as thread:
            pending: tuple[list[SnapshotEntry], Callable[[], Awaitable[list[bytes]]]] | None = None
            for group in [*_grouped(entries, lambda entry: entry.size), []]:
                contents = thread.begin(partial(self._read_all, group, identifier))
                if pending is not None:
                    await self._write_group(pending[0], await pending[1]())
                pending = group, contents

    def _read_all(self, group: Sequence[SnapshotEntry], identifier: str) -> list[bytes]:
        return [self._store.read(entry, identifier) for entry in group]

    async def _write_group(self, group: Sequence[SnapshotEntry], contents: Sequence[bytes]) -> None:
        requests = [
            ({**_write_request(entry), "last": True, "sha256": entry.sha256}, content)
            for entry, content in zip(group, contents, strict=True)
        ]
        for entry, done in zip(group, await protocol.ask_together(self._conversation, requests), strict=True):
            self._artifacts.stored(entry.path, protocol.restored_file(done, entry.size))

    async def _write(self, entry: SnapshotEntry, identifier: str) -> None:
        with CheckedContent(self._store, entry, identifier) as content:
            stored = await protocol.store(self._conversation, _write_request(entry), _ContentSource(content))
        self._artifacts.stored(entry.path, stored)


class _ContentSource:
    """A content on its way in. Before its last part goes, its digest was compared."""

    def __init__(self, content: CheckedContent) -> None:
        self._content = content

    async def next(self) -> tuple[bytes, bool]:
        data = await anyio.to_thread.run_sync(self._content.read, protocol.CHUNK_BYTES)
        return data, self._content.left == 0

    def sha256(self) -> str:
        return self._content.sha256()


def check_room(manifest: SnapshotManifest, policy: Policy) -> None:
    room = policy.workspace_bytes
    if manifest.size_bytes > room or len(manifest.entries) > policy.resources.inodes:
        raise DeniedError(
            f"snapshot {manifest.id[:12]} has {format_size(max(manifest.size_bytes, 1))} in {len(manifest.entries)} "
            f"files and folders, and the policy's workspace holds {format_size(room)} in {policy.resources.inodes}; "
            "raise filesystem.workspace.size or resources.inodes"
        )


def _write_request(entry: SnapshotEntry) -> dict[str, Any]:
    return {"do": "write", "path": entry.path, "executable": False, **_attributes(entry)}


def _attributes(entry: SnapshotEntry) -> dict[str, int]:
    return {"mode": entry.mode, "modified_ns": entry.modified_ns}


def _described(item: tuple[str, FileEntry]) -> SnapshotEntry:
    path, entry = item
    match entry.kind:
        case FileKind.FILE:
            return SnapshotEntry(
                path, "file", entry.mode & 0o777, entry.modified_ns, entry.size, entry.sha256 or "", ""
            )
        case FileKind.FOLDER:
            return SnapshotEntry(path, "folder", entry.mode & 0o777, entry.modified_ns)
        case _:
            return SnapshotEntry(path, "link", target=entry.target or "")


def _grouped(items: Sequence[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """In order, few enough that all requests, or their small answers, fit into the buffers of a socket."""
    group, size = list[T](), 0
    for item in items:
        if len(group) == _TOGETHER or (group and size + size_of(item) > _TOGETHER_BYTES):
            yield group
            group, size = [], 0
        group.append(item)
        size += size_of(item)
    if group:
        yield group


def _changed(path: str) -> UsageError:
    return UsageError(f"{shown(path)} changed while the workspace was saved; wait until no program writes to it")
