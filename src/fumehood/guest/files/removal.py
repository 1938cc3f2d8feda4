"""Removes a folder with all that is in it: any depth, two descriptors, no recursion, one pass."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from .resolution import ChangedError, PathTrail

_FILLED_AGAIN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


def remove_tree(folder: int, name: str) -> None:
    trail = PathTrail(folder)
    try:
        _empty(trail, name)
        _remove_folder(trail.folder, name)
    finally:
        trail.close()


def _empty(trail: PathTrail, name: str) -> None:
    trail.enter(name)
    remaining = [_remove_files(trail.folder)]
    while remaining:
        if remaining[-1]:
            if _descend(trail, remaining[-1][-1]):
                remaining.append(_remove_files(trail.folder))
            else:
                remaining[-1].pop()
            continue
        remaining.pop()
        trail.climb()
        if remaining:
            _remove_folder(trail.folder, remaining[-1].pop())


def _descend(trail: PathTrail, name: str) -> bool:
    """False when it is gone or no folder any more; then the removal of what is around it will tell."""
    try:
        trail.enter(name)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _remove_folder(folder: int, name: str) -> None:
    try:
        os.rmdir(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno in _FILLED_AGAIN:
            raise ChangedError from error
        raise


def _remove_files(folder: int) -> list[str]:
    """Returns the names of the folders, which have to be emptied first."""
    folders: list[str] = []
    for name, is_folder in _entries(folder):
        if is_folder:
            folders.append(name)
            continue
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
    return folders


def _entries(folder: int) -> list[tuple[str, bool]]:
    """All at once: file systems differ in what they list while it is being removed."""
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        with os.scandir(descriptor) as entries:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    finally:
        os.close(descriptor)
