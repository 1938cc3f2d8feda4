"""A file or a tree of the sandbox becomes one of the host's: data only, complete or not at all."""

from __future__ import annotations

import os
import posixpath
from contextlib import suppress
from functools import partial

import anyio
import anyio.to_thread

from fumehood.backends.interface import Conversation
from fumehood.concurrency.threads import run_whole
from fumehood.errors import DeniedError, SandboxError, UsageError
from fumehood.policy import format_size
from fumehood.policy.filesystem import Outputs
from fumehood.policy.paths import TMP, is_inside
from fumehood.sandbox.audit import FileAudit
from fumehood.sandbox.files import protocol
from fumehood.sandbox.files.entries import FileKind, Transfer, TransferCount
from fumehood.sandbox.files.errors import FileRefusal
from fumehood.sandbox.files.local import LocalSink, Staging
from fumehood.sandbox.files.paths import joined, shown, stays_inside
from fumehood.sandbox.files.walk import TooManyError, Walk, WalkEntry, reason_of

_MAX_ENTRIES = 1_000_000


def local_target(local: str, name: str) -> str:
    """The target of a download, as with `cp`: in an existing folder under its own name, else under the given name."""
    into_folder = os.path.isdir(local)
    if local.endswith("/") and not into_folder:
        raise UsageError(f"{local!r} is not a folder; make it first, or leave out the slash")
    return os.path.join(local, name) if into_folder else local


def check_output(outputs: Outputs, path: str, *, or_below: bool = False) -> None:
    """Refuses a path that no pattern of the outputs names, before a request is sent to the cell."""
    if path.startswith("/") and not is_inside(path, TMP):
        raise DeniedError(f"{shown(path)} is not in the workspace, and only from there files may leave")
    if not outputs.match(path) and not (or_below and outputs.reach(path)):
        raise _denied(path, or_below=or_below)


def _denied(path: str, *, or_below: bool) -> DeniedError:
    below = f", or [{joined(path, '**')!r}] if it is a folder" if or_below and path else ""
    return DeniedError(
        f"{shown(path)} may not leave the sandbox; add it to the policy: filesystem.outputs: [{path or '**'!r}]{below}"
    )


class Download:
    """One download. `limit` bounds the bytes: files with holes can be larger than the place that they lie in."""

    def __init__(
        self, conversation: Conversation, outputs: Outputs, path: str, audit: FileAudit, *, git: bool, limit: int
    ) -> None:
        self._conversation, self._outputs, self._path, self._audit = conversation, outputs, path, audit
        self._git, self._limit = git, limit
        self._tally = TransferCount()
        self._links: list[tuple[str, str]] = []
        self._name = posixpath.basename(path) or "workspace"
        self._target = ""

    async def into(self, local: str) -> Transfer:
        if not self._git and ".git" in self._path.lower().split("/"):
            raise UsageError(f"{shown(self._path)} belongs to version control; ask for it with git=True")
        entry = await protocol.stat(self._conversation, self._path, links=False)
        is_folder = entry.kind is FileKind.FOLDER
        if not (self._outputs.reach(self._path) if is_folder else self._outputs.match(self._path)):
            raise _denied(self._path, or_below=is_folder)
        target = self._target = await anyio.to_thread.run_sync(local_target, local, self._name)
        staging = await run_whole(partial(Staging, target), Staging.remove)
        try:
            if is_folder:
                await self._take_tree(staging)
            else:
                await self._take_file(self._path, staging, (self._name,))
            # The audit log has the files before the caller can see them.
            await self._audit.write()
            await anyio.to_thread.run_sync(staging.publish, self._name)
        except OSError as error:
            raise UsageError(f"{target!r} cannot be written: {error.strerror}") from error
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(staging.remove)
        return self._tally.total()

    async def _take_tree(self, staging: Staging) -> None:
        await self._make_folder(staging, (self._name,))
        walk = Walk(self._conversation, self._outputs, git=self._git, max_entries=_MAX_ENTRIES)
        try:
            async for found in walk.below(self._path):
                await self._take(found, staging)
        except TooManyError as error:
            text = f"{shown(self._path)} has {error}; download the folders in it one by one"
            raise UsageError(text) from None
        for link, target in self._links:
            await anyio.to_thread.run_sync(staging.make_link, self._place(link), target)

    async def _take(self, found: WalkEntry, staging: Staging) -> None:
        if found.reason is not None:
            self._tally.skip(found.path, found.reason)
        elif found.entry.kind is FileKind.FOLDER:
            # Others are made when there is something to put into them.
            if self._outputs.match(found.path):
                await self._make_folder(staging, self._place(found.path))
        elif found.entry.kind is FileKind.LINK:
            self._note_link(found)
        else:
            try:
                await self._take_file(found.path, staging, self._place(found.path))
            except FileRefusal as refusal:
                self._tally.skip(found.path, reason_of(refusal))

    def _note_link(self, found: WalkEntry) -> None:
        below = found.path.removeprefix(f"{self._path}/") if self._path else found.path
        target = found.entry.target or ""
        if stays_inside(below, target):
            self._links.append((found.path, target))
        else:
            self._tally.skip(found.path, "it is a link that leads out of the folder, or may")

    async def _take_file(self, path: str, staging: Staging, place: tuple[str, ...]) -> None:
        folder = await anyio.to_thread.run_sync(staging.open_folder, place[:-1])
        sink = LocalSink(folder, place[-1])
        try:
            limit = self._limit - self._tally.bytes
            size = await protocol.fetch(self._conversation, path, sink, limit=limit, links=False)
            self._tally.add(size)
            await anyio.to_thread.run_sync(sink.finish)
            self._audit.fetched(path, size, sink.sha256(), os.path.join(self._target, *place[1:]))
        except FileRefusal as refusal:
            if refusal.reason == "too large":
                raise self._too_large() from None
            raise
        finally:
            with suppress(FileNotFoundError):
                sink.drop()
            os.close(folder)

    def _too_large(self) -> DeniedError:
        size = format_size(self._limit)
        return DeniedError(
            f"{shown(self._path)} has more than the {size} that the workspace can hold, by files with holes or by many "
            "names for one file; remove those, or raise filesystem.workspace.size"
        )

    async def _make_folder(self, staging: Staging, place: tuple[str, ...]) -> None:
        os.close(await anyio.to_thread.run_sync(staging.open_folder, place))

    def _place(self, path: str) -> tuple[str, ...]:
        """Where it goes, as names below the staging folder; each was checked when it arrived."""
        below = path.removeprefix(f"{self._path}/") if self._path else path
        names = tuple(below.split("/"))
        if not below or any(name in ("", ".", "..") for name in names):
            raise SandboxError(f"the sandbox's file service broke the protocol: it named {path!r}")
        return (self._name, *names)
