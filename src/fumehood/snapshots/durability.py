"""Files that survive a crash: written beside, synced, renamed, and the folder synced too."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

# Beyond this many files one sync of the whole file system takes less time than one of each.
MOST_SYNCED_ALONE = 16


def write_durably(path: Path, data: bytes, temporary: Path) -> None:
    """The file has its old content or this one, whenever the machine stops; this one once the call has returned."""
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def remove_durably(path: Path) -> None:
    path.unlink()
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    _sync(path, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_system(root: Path) -> None:
    """Since Linux 5.8 it fails, too, when something could not be written."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # SAFETY: takes a descriptor and changes no memory of ours.
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(root))
    finally:
        os.close(descriptor)
