"""Folders that Fumehood keeps for a user: where they are, that no other user can change them, how they are removed."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from fumehood.errors import FumehoodError, UsageError
from fumehood.frozen import frozen

_REMOVAL_ATTEMPTS, _PAUSE_SECONDS = 40, 0.05
_XDG = {
    "cache": ("XDG_CACHE_HOME", ".cache"),
    "config": ("XDG_CONFIG_HOME", ".config"),
    "state": ("XDG_STATE_HOME", ".local/state"),
}


@frozen
class PrivateFolder:
    """A kind of folder that belongs to one user: what it holds, and how to choose another one."""

    content: str
    variable: str
    """The environment variable that names another folder."""
    is_readable: bool = False
    """Whether other users may look into it. They may never write."""
    error: Callable[[str], FumehoodError] = UsageError

    def make(self, path: Path) -> None:
        """Create the folder with mode 0700, or check that an existing one is this user's own."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700, exist_ok=True)
            entry, details = path.lstat(), path.stat()
        except OSError as error:
            raise self.error(
                f"{path}, the folder of {self.content}, cannot be used: {error.strerror}; "
                f"set {self.variable} to another folder"
            ) from error
        # A link that another user made may lead to another place tomorrow.
        if {entry.st_uid, details.st_uid} != {os.geteuid()}:
            owner = next(uid for uid in (entry.st_uid, details.st_uid) if uid != os.geteuid())
            raise self.error(
                f"{path}, the folder of {self.content}, belongs to another user (uid {owner}); "
                f"set {self.variable} to a folder of your own"
            )
        self._check_mode(path, details.st_mode)

    def _check_mode(self, path: Path, mode: int) -> None:
        if self.is_readable and mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise self.error(
                f"{path}, the folder of {self.content}, can be written by others; run `chmod go-w {path}` "
                f"or set {self.variable} to another folder"
            )
        if not self.is_readable and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise self.error(f"{path}, the folder of {self.content}, is open to others; run `chmod 700 {path}`")


HOME = PrivateFolder("environments and images", "FUMEHOOD_HOME", is_readable=True)


def find_home(variables: Mapping[str, str]) -> Path:
    """$FUMEHOOD_HOME, else a folder in the user's cache."""
    chosen = variables.get(HOME.variable)
    if not chosen:
        return user_folder("cache", variables, HOME.variable)
    if not os.path.isabs(chosen):
        raise UsageError(f"{HOME.variable} {chosen!r} must be an absolute path")
    return Path(chosen)


def user_folder(kind: Literal["cache", "config", "state"], variables: Mapping[str, str], instead: str) -> Path:
    """The XDG folder of this kind, for Fumehood. `instead` is the variable to set where the user has no home folder."""
    variable, below_home = _XDG[kind]
    chosen = variables.get(variable, "")
    # The XDG specification: a path that is not absolute is to be ignored.
    folder = Path(chosen) if os.path.isabs(chosen) else Path(os.path.expanduser("~")) / below_home
    if not folder.is_absolute():
        raise UsageError(f"this user has no home folder; set {instead} to a folder of its own")
    return folder / "fumehood"


def remove_folder(folder: Path) -> None:
    """Remove a folder, read-only or half written; one that does not exist is fine.

    A program whose parent was killed may still write into it for a moment, before it is dead too.
    """
    for attempt in reversed(range(_REMOVAL_ATTEMPTS)):
        try:
            _remove(folder)
            break
        except OSError:
            if attempt == 0:
                raise
            time.sleep(_PAUSE_SECONDS)


def _remove(folder: Path) -> None:
    if not folder.exists():
        return
    for root, _, _ in os.walk(folder):
        # Entries of a folder can only be removed when it can be written; os.walk does not follow links.
        os.chmod(root, 0o700)
    import shutil

    shutil.rmtree(folder)
