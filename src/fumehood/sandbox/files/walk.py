"""Goes through a tree in the sandbox, folder by folder, from the host; asks for each by its path, without links.

Bounded in entries, in characters and in depth, so that no tree that a program can build keeps the host busy for long,
fills its memory or makes it build paths that are too long to use.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from fumehood.backends.interface import Conversation
from fumehood.frozen import frozen
from fumehood.policy.filesystem import Outputs
from fumehood.sandbox.files import protocol
from fumehood.sandbox.files.entries import FileEntry, FileKind
from fumehood.sandbox.files.errors import TOO_LONG, UNREADABLE, VANISHED, FileRefusal
from fumehood.sandbox.files.paths import joined

MAX_DEPTH = 100
MAX_CHARACTERS = 64 * 1024**2
"""Most characters of all paths and targets of links: every entry of a deep tree has a long path."""
_TOO_LARGE = "more bytes in its files, holes included, than it may hold"
_TOO_LONG = "paths and links that are too long to keep together"

NOT_NAMED = "filesystem.outputs does not name it"
CHANGED = "it changed meanwhile"
FORBIDDEN = "its permissions do not allow to read it"


class TooManyError(Exception):
    """There is more than the walk was to see; says of what."""


@frozen
class WalkEntry:
    """`path` is below the workspace. With a reason it is not to be taken; a folder then was not entered."""

    path: str
    entry: FileEntry
    reason: str | None


class Walk:
    def __init__(
        self,
        conversation: Conversation,
        outputs: Outputs,
        *,
        git: bool,
        max_entries: int,
        max_bytes: int | None = None,
        digests: bool = False,
    ) -> None:
        """With `max_bytes`, more bytes in files are too many; with `digests` as well, entries of files have theirs."""
        self._conversation, self._outputs, self._git = conversation, outputs, git
        self._max_entries = self._left = max_entries
        self._left_characters = MAX_CHARACTERS
        self._left_bytes, self._digests = max_bytes, digests

    async def below(self, top: str) -> AsyncIterator[WalkEntry]:
        pending: list[tuple[str, FileEntry | None, int]] = [(top, None, 0)]
        while pending:
            path, entry, depth = pending.pop()
            try:
                entries = await self._list(path)
            except FileRefusal as refusal:
                if entry is None:
                    raise
                yield WalkEntry(path, entry, reason_of(refusal))
                continue
            for item in entries:
                found = self._judge(joined(path, item.name), item, depth)
                yield found
                if item.kind is FileKind.FOLDER and found.reason is None:
                    pending.append((found.path, item, depth + 1))

    async def _list(self, path: str) -> list[FileEntry]:
        most = self._left_bytes if self._digests else None
        try:
            entries = await protocol.list_folder(
                self._conversation, path, limit=self._left + 1, links=False, most_digested=most
            )
        except FileRefusal as refusal:
            if refusal.reason == TOO_LONG:
                raise TooManyError(_TOO_LONG) from refusal
            if refusal.reason == "too large" and self._left_bytes is not None:
                raise TooManyError(_TOO_LARGE) from refusal
            raise
        if self._left_bytes is not None:
            self._left_bytes -= sum(entry.size for entry in entries if entry.kind is FileKind.FILE)
            if self._left_bytes < 0:
                raise TooManyError(_TOO_LARGE)
        self._left -= len(entries)
        if self._left < 0:
            raise TooManyError(f"more than {self._max_entries} entries")
        self._left_characters -= sum(len(path) + len(entry.name) + len(entry.target or "") for entry in entries)
        if self._left_characters < 0:
            raise TooManyError(_TOO_LONG)
        return entries

    def _judge(self, path: str, entry: FileEntry, depth: int) -> WalkEntry:
        if entry.name.lower() == ".git" and not self._git:
            return WalkEntry(path, entry, "it belongs to version control; ask for it with git=True")
        if entry.kind is FileKind.FOLDER:
            if depth + 1 >= MAX_DEPTH:
                return WalkEntry(path, entry, f"it is more than {MAX_DEPTH} folders deep")
            return WalkEntry(path, entry, None if self._outputs.reach(path) else NOT_NAMED)
        if entry.kind not in (FileKind.FILE, FileKind.LINK):
            return WalkEntry(path, entry, f"it is a {entry.kind}")
        return WalkEntry(path, entry, None if self._outputs.match(path) else NOT_NAMED)


def reason_of(refusal: FileRefusal) -> str:
    """Why something that was there a moment ago cannot be had; what is not the programs' doing is raised."""
    if refusal.reason in VANISHED:
        return CHANGED
    if refusal.reason in UNREADABLE:
        return FORBIDDEN
    raise refusal
