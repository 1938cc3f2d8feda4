"""Goes through a tree in the sandbox, folder by folder, from the host; asks for each by its path, without links.

Bounded in entries and in depth, so that no tree that a program can build keeps the host busy for long or makes it build
paths that nobody can use.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from fumehood.backends.interface import Conversation
from fumehood.files import exchanges
from fumehood.files.entries import FileEntry, Kind
from fumehood.files.paths import joined
from fumehood.files.refusals import UNREADABLE, VANISHED, Refusal
from fumehood.policy.outputs import Outputs

MAX_DEPTH = 100

NOT_NAMED = "filesystem.outputs does not name it"
CHANGED = "it changed meanwhile"
FORBIDDEN = "its permissions do not allow to read it"


class TooManyError(Exception):
    """There are more entries than the walk was to see."""


@dataclass(frozen=True, slots=True)
class Found:
    """`path` is below the workspace. With a reason it is not to be taken; a folder then was not entered."""

    path: str
    entry: FileEntry
    reason: str | None


class Walk:
    def __init__(self, conversation: Conversation, outputs: Outputs, *, git: bool, max_entries: int) -> None:
        self._conversation, self._outputs, self._git = conversation, outputs, git
        self._left = max_entries

    async def below(self, top: str) -> AsyncIterator[Found]:
        pending: list[tuple[str, FileEntry | None, int]] = [(top, None, 0)]
        while pending:
            path, entry, depth = pending.pop()
            try:
                entries = await self._list(path)
            except Refusal as refusal:
                if entry is None:
                    raise
                yield Found(path, entry, reason_of(refusal))
                continue
            for item in entries:
                found = self._judge(joined(path, item.name), item, depth)
                yield found
                if item.kind is Kind.FOLDER and found.reason is None:
                    pending.append((found.path, item, depth + 1))

    async def _list(self, path: str) -> list[FileEntry]:
        entries = await exchanges.list_folder(self._conversation, path, limit=self._left + 1, links=False)
        self._left -= len(entries)
        if self._left < 0:
            raise TooManyError
        return entries

    def _judge(self, path: str, entry: FileEntry, depth: int) -> Found:
        if entry.name.lower() == ".git" and not self._git:
            return Found(path, entry, "it belongs to version control; ask for it with git=True")
        if entry.kind is Kind.FOLDER:
            if depth + 1 >= MAX_DEPTH:
                return Found(path, entry, f"it is more than {MAX_DEPTH} folders deep")
            return Found(path, entry, None if self._outputs.reach(path) else NOT_NAMED)
        if entry.kind not in (Kind.FILE, Kind.LINK):
            return Found(path, entry, f"it is a {entry.kind}")
        return Found(path, entry, None if self._outputs.match(path) else NOT_NAMED)


def reason_of(refusal: Refusal) -> str:
    """Why something that was there a moment ago cannot be had; what is not the programs' doing is raised."""
    if refusal.reason in VANISHED:
        return CHANGED
    if refusal.reason in UNREADABLE:
        return FORBIDDEN
    raise refusal
