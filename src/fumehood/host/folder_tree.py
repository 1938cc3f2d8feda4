"""A folder of the host's, read and looked through by names below it. Never through a link, nor out of it."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from types import TracebackType
from typing import Self

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC

Names = tuple[str, ...]


class FolderTree:
    """`with FolderTree(path) as tree`. Every step is an `openat` without links, so that nothing can be exchanged
    between a look and a use. The path of the folder itself may have links in it: the caller named it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._top)

    def open_folder(self, names: Names, *, make: bool = False) -> int:
        """A descriptor of a folder below, which is made if `make`; OSError if there is none, or a link on the way."""
        checked, current = [*map(_single, names)], os.dup(self._top)
        for name in checked:
            try:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o755, dir_fd=current)
                below = os.open(name, _FOLDER, dir_fd=current)
            finally:
                os.close(current)
            current = below
        return current

    def open_file(self, names: Names) -> int:
        """A descriptor of a regular file. What it is is looked up first: opening alone can mean something."""
        folder = self.open_folder(names[:-1])
        try:
            if not stat.S_ISREG(os.stat(_single(names[-1]), dir_fd=folder, follow_symlinks=False).st_mode):
                raise IsADirectoryError(f"{'/'.join(names)!r} is not a regular file")
            return os.open(names[-1], _FILE, dir_fd=folder)
        finally:
            os.close(folder)

    def look_at(self, names: Names) -> os.stat_result | None:
        """The entry with this name, links not followed; None if there is none, or only through a link."""
        try:
            folder = self.open_folder(names[:-1])
        except OSError:
            return None
        try:
            return os.stat(_single(names[-1]), dir_fd=folder, follow_symlinks=False)
        except OSError:
            return None
        finally:
            os.close(folder)

    def target_of(self, names: Names) -> str:
        """What is written in a link."""
        folder = self.open_folder(names[:-1])
        try:
            return os.readlink(_single(names[-1]), dir_fd=folder)
        finally:
            os.close(folder)

    def entries(self, names: Names, most: int) -> list[tuple[str, os.stat_result]]:
        """What is in a folder, by name: at most one entry more than `most`."""
        folder, found = self.open_folder(names), list[tuple[str, os.stat_result]]()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):  # it is gone again
                        found.append((entry.name, entry.stat(follow_symlinks=False)))
                    if len(found) > most:
                        break
        finally:
            os.close(folder)
        return sorted(found)


def read_all(descriptor: int, most: int) -> bytes:
    """The content of an open file, which is closed: at most one byte more than `most`."""
    with open(descriptor, "rb") as stream:
        return stream.read(most + 1)


def names_in(path: str) -> Names:
    """The names of a relative path. ValueError for a path that may lead elsewhere."""
    return tuple(map(_single, path.split("/")))


def _single(name: str) -> str:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is not a single name")
    return name
