"""The folders that runs use up. A container's user cannot make mounts, so these are emptied instead of thrown away."""

from __future__ import annotations

import itertools
import os
from contextlib import suppress

from ..contract.paths import RUN_FOLDER, TMP, VAR_TMP
from . import ipc_cleanup

FOLDERS = (TMP, VAR_TMP, "/dev/shm", RUN_FOLDER)


def clear(kept: tuple[str, ...] = ()) -> None:
    """When no run is under way: what is there now, nobody makes more of."""
    for folder in FOLDERS:
        if folder not in kept:
            _empty(folder)
    ipc_cleanup.remove_all()


def remove(folder: str) -> None:
    _empty(folder)
    with suppress(OSError):
        os.rmdir(folder)


def _empty(folder: str) -> None:
    """Any depth and any modes, without recursion: what is in a folder is moved up, and then the folder is empty."""
    names = (f"{folder}/.{number}.gone" for number in itertools.count())
    while entries := _entries(folder):
        for path, is_folder in entries:
            if not is_folder:
                os.unlink(path)
                continue
            os.chmod(path, 0o700)
            for inner, _ in _entries(path):
                os.rename(inner, next(name for name in names if not os.path.lexists(name)))
            os.rmdir(path)


def _entries(folder: str) -> list[tuple[str, bool]]:
    with os.scandir(folder) as found:
        return [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in found]
