"""What changes in a folder: two looks at it, and the difference between them.

Nothing is queued between two looks, however much a program changes: what is kept is one entry for each file that is
there, in this process, whose memory is the sandbox's. What comes and goes between two looks is not seen.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from ..contract.limits import MOST_CHANGES, MOST_WATCHED
from .conversation import FileRefusedError
from .entries import kind_of

_DEEPEST = 64
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OWN_PREFIX = ".hood-"  # files that the service itself is about to put in place


class Seen(NamedTuple):
    inode: int
    kind: str
    size: int
    modified_ns: int
    changed_ns: int

    def is_same_file(self, other: Seen) -> bool:
        """Under another name: renaming changes the time of change alone."""
        return self[:4] == other[:4]


Look = dict[str, Seen]


def look(folder: int, *, recursive: bool) -> Look:
    """Relative paths below the folder. Links are not followed; raises FileRefusedError if there are too many."""
    found: Look = {}
    for path, seen in _entries(folder, "", _DEEPEST if recursive else 0):
        if len(found) >= MOST_WATCHED:
            raise FileRefusedError("too many to watch")
        found[path] = seen
    return found


def _entries(folder: int, prefix: str, depth: int) -> Iterator[tuple[str, Seen]]:
    try:
        with os.scandir(folder) as entries:
            listed = [entry for entry in entries if not entry.name.startswith(_OWN_PREFIX)]
    except OSError:
        return  # a folder that was removed while it is held open
    for entry in listed:
        try:
            details = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # it is gone again
        path = f"{prefix}{entry.name}"
        yield path, _seen(details)
        if depth and stat.S_ISDIR(details.st_mode):
            yield from _below(folder, entry.name, f"{path}/", depth - 1)


def _below(folder: int, name: str, prefix: str, depth: int) -> Iterator[tuple[str, Seen]]:
    try:
        descriptor = os.open(name, _OPEN, dir_fd=folder)
    except OSError:
        return  # gone, replaced, or closed to the sandbox's own user
    try:
        yield from _entries(descriptor, prefix, depth)
    finally:
        os.close(descriptor)


def _seen(details: os.stat_result) -> Seen:
    kind = kind_of(details)
    if kind == "folder":  # its size and times are about what is in it, which is reported itself
        return Seen(details.st_ino, kind, 0, 0, stat.S_IMODE(details.st_mode))
    return Seen(details.st_ino, kind, details.st_size, details.st_mtime_ns, details.st_ctime_ns)


def difference(before: Look, after: Look) -> list[list[str]]:
    """`[kind, path]`, and for what was renamed the old path, too. Folders come before what is in them."""
    gone: dict[int, list[str]] = {}
    for path in sorted(before.keys() - after.keys()):
        gone.setdefault(before[path].inode, []).append(path)
    changes: list[list[str]] = []
    for path in sorted(after):
        seen, old = after[path], before.get(path)
        sources = gone.get(seen.inode) if old is None else None
        if sources and before[sources[0]].is_same_file(seen):
            changes.append(["renamed", path, sources.pop(0)])
        elif old is None:
            changes.append(["created", path])
        elif old != seen:
            changes.append(["modified", path])
    return [*changes, *(["deleted", path] for paths in gone.values() for path in paths)]


class FolderWatch:
    """One folder, held open, and what was seen in it last."""

    def __init__(self, folder: int, *, recursive: bool) -> None:
        self._folder, self._recursive = folder, recursive
        self._before: Look | None = look(folder, recursive=recursive)
        self._pending: list[list[str]] = []
        self._is_there = True

    def next_changes(self) -> list[list[str]]:
        """Some of what has changed, at most MOST_CHANGES.

        `["overflow", ""]` where there is too much to list it all, `["deleted", ""]` once if the folder itself goes.
        """
        if not self._pending:
            self._pending = [*self._look_again(), *self._own_end()]
        changes, self._pending = self._pending[:MOST_CHANGES], self._pending[MOST_CHANGES:]
        return changes

    def _own_end(self) -> list[list[str]]:
        was_there, self._is_there = self._is_there, os.fstat(self._folder).st_nlink > 0
        return [["deleted", ""]] if was_there and not self._is_there else []

    def _look_again(self) -> list[list[str]]:
        before = self._before
        try:
            self._before = look(self._folder, recursive=self._recursive)
        except FileRefusedError:
            self._before = None
        if before is not None and self._before is not None:
            return difference(before, self._before)
        # Once when there is too much, and once more when there is not: what happened between is not known.
        return [] if before is self._before else [["overflow", ""]]
