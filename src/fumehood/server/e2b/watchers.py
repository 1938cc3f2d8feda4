"""Watches of folders, as E2B names what changes: as a stream, or kept until the next question."""

from __future__ import annotations

import asyncio
import posixpath
import secrets
from collections import deque
from typing import Any

from fumehood.errors import FumehoodError, UsageError
from fumehood.sandbox.files.entries import ChangeKind, FileChange, FileKind
from fumehood.sandbox.files.watch import AsyncWatch
from fumehood.server.e2b.errors import MissingError
from fumehood.server.e2b.paths import inner_path, outer_path
from fumehood.server.sandboxes.placement import PlacedSandbox

_MOST = 32
_MOST_KEPT = 10_000
_TYPES = {
    ChangeKind.CREATED: "EVENT_TYPE_CREATE",
    ChangeKind.MODIFIED: "EVENT_TYPE_WRITE",
    ChangeKind.DELETED: "EVENT_TYPE_REMOVE",
}


async def events_of(box: PlacedSandbox, change: FileChange, folder: str) -> list[dict[str, Any]]:
    """Names are relative to the folder. A file that is new was written to, too."""
    if change.kind is ChangeKind.RENAMED and change.old_path is not None:
        old, new = _name(change.old_path, folder), _name(change.path, folder)
        return [{"name": old, "type": "EVENT_TYPE_RENAME"}, {"name": new, "type": "EVENT_TYPE_CREATE"}]
    name = _name(change.path, folder)
    if change.kind is ChangeKind.OVERFLOW:
        raise UsageError(f"more changed in {folder} than can be listed; list it, and watch a folder further down")
    events = [{"name": name, "type": _TYPES[change.kind]}]
    if change.kind is ChangeKind.CREATED and await _is_file(box, change.path):
        events.append({"name": name, "type": _TYPES[ChangeKind.MODIFIED]})
    return events


async def _is_file(box: PlacedSandbox, path: str) -> bool:
    try:
        return (await box.files.stat(path)).kind is FileKind.FILE
    except FumehoodError:
        return False  # it is gone again


def _name(path: str, folder: str) -> str:
    return posixpath.relpath(outer_path(path), folder)


class Watcher:
    """Keeps what has changed until it is asked for; of too much, the newest part."""

    def __init__(self, box: PlacedSandbox, watch: AsyncWatch, folder: str, *, has_entries: bool) -> None:
        self._box, self._watch, self.folder, self.has_entries = box, watch, folder, has_entries
        self._events = deque[dict[str, Any]](maxlen=_MOST_KEPT)
        self._task = asyncio.ensure_future(self._keep())

    async def _keep(self) -> None:
        async for change in self._watch:
            self._events.extend(await events_of(self._box, change, self.folder))

    def take(self) -> list[dict[str, Any]]:
        """What has changed since the last time. The error that ended the watch, after the last events."""
        events = list(self._events)
        self._events.clear()
        if not events and self._task.done() and not self._task.cancelled() and (error := self._task.exception()):
            raise error
        return events

    async def close(self) -> None:
        await self._watch.close()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class Watchers:
    def __init__(self, box: PlacedSandbox) -> None:
        self._box = box
        self._kept: dict[str, Watcher] = {}

    async def begin(self, path: str, *, recursive: bool) -> tuple[AsyncWatch, str]:
        """A watch that sees changes from now on, and its folder in E2B's terms."""
        place = inner_path(path)
        watch = self._box.watch(place, recursive=recursive)
        await watch.begin()
        return watch, outer_path(place)

    async def create(self, path: str, *, recursive: bool, has_entries: bool) -> str:
        if len(self._kept) >= _MOST:
            raise UsageError(f"the sandbox has {_MOST} watchers; remove some of them")
        watch, folder = await self.begin(path, recursive=recursive)
        identifier = secrets.token_hex(8)
        self._kept[identifier] = Watcher(self._box, watch, folder, has_entries=has_entries)
        return identifier

    def find(self, identifier: str) -> Watcher:
        found = self._kept.get(identifier)
        if found is None:
            raise MissingError("there is no such watcher")
        return found

    async def remove(self, identifier: str) -> None:
        watcher = self.find(identifier)
        del self._kept[identifier]
        await watcher.close()
