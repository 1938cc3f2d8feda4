"""The folders that runs use up. A container's user cannot make mounts, so these are emptied instead of thrown away.

Programs can write in them, and may be at work there: everything goes by descriptors of folders that are no links, and
with no more rights than programs have (`acting_as`).
"""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress

from ..contract.paths import RUN_FOLDER, TMP, VAR_TMP
from . import ipc_cleanup

FOLDERS = (TMP, VAR_TMP, "/dev/shm", RUN_FOLDER)
_PATH = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE_OF_RUN_FOLDER = 0o755
# For the folder of a run among others, which may put more into it as long as they like.
_REMOVAL_SECONDS = 0.5


def clear(kept: tuple[str, ...] = ()) -> None:
    """When no run is under way: nothing is added meanwhile."""
    for folder in FOLDERS:
        if folder not in kept:
            # Its path is out of programs' reach, its mode is not.
            if folder == RUN_FOLDER:
                os.chmod(folder, _MODE_OF_RUN_FOLDER)
            place = os.open(folder, _READ)
            try:
                _empty(place, None)
            finally:
                os.close(place)
    ipc_cleanup.remove_all()


def make_run_folder() -> str:
    """Makes a folder for the script of a run that is not alone."""
    folder = f"{RUN_FOLDER}/{secrets.token_hex(8)}"
    os.mkdir(folder, 0o700)
    return folder


def open_run_folder(folder: str) -> int | None:
    """What is there under this name, if it is a folder: programs may have put anything in its place."""
    try:
        return os.open(folder, _PATH)
    except OSError:
        return None


def remove_run_folder(folder: str) -> None:
    """Removes a run's folder as far as possible while other runs are under way. `clear` removes the rest."""
    parent, name = os.path.split(folder)
    with suppress(OSError):
        place = os.open(parent, _PATH)
        try:
            _remove(place, name, time.monotonic() + _REMOVAL_SECONDS)
        finally:
            os.close(place)


def _remove(place: int, name: str, deadline: float | None) -> None:
    inner = _unlock(place, name)
    if inner is None:
        os.unlink(name, dir_fd=place)
        return
    try:
        _empty(inner, deadline)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=place)


def _empty(folder: int, deadline: float | None) -> None:
    """Any depth and any modes, without recursion: what is in a folder is moved up, and then the folder is empty."""
    while names := os.listdir(folder):
        for name in names:
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError
            inner = _unlock(folder, name)
            if inner is None:
                os.unlink(name, dir_fd=folder)
                continue
            try:
                _move_up(inner, folder)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=folder)


def _move_up(inner: int, folder: int) -> None:
    for name in os.listdir(inner):
        # A folder that cannot be written cannot be moved either.
        locked = _unlock(inner, name)
        if locked is not None:
            os.close(locked)
        os.rename(name, f".{secrets.token_hex(8)}", src_dir_fd=inner, dst_dir_fd=folder)


def _unlock(place: int, name: str) -> int | None:
    """The folder of this name, made readable and writable; None where it is something else."""
    try:
        path = os.open(name, _PATH, dir_fd=place)
    except NotADirectoryError:
        return None
    try:
        os.chmod(f"/proc/self/fd/{path}", 0o700)
        return os.open(".", _READ, dir_fd=path)
    finally:
        os.close(path)
