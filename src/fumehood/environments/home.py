"""Where Fumehood keeps what it makes for a user, and that nobody else can change it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from fumehood.errors import UsageError


def find_home(variables: Mapping[str, str]) -> Path:
    """$FUMEHOOD_HOME, else the user's cache folder."""
    chosen = variables.get("FUMEHOOD_HOME")
    if chosen:
        if not os.path.isabs(chosen):
            raise UsageError(f"FUMEHOOD_HOME {chosen!r} must be an absolute path")
        return Path(chosen)
    cache = variables.get("XDG_CACHE_HOME", "")
    # The XDG specification: a path that is not absolute is to be ignored.
    folder = Path(cache) if os.path.isabs(cache) else Path(os.path.expanduser("~")) / ".cache"
    if not folder.is_absolute():
        raise UsageError(
            "this user has no home folder to keep environments in; set FUMEHOOD_HOME to a folder of its own"
        )
    return folder / "fumehood"


def make_private(folder: Path) -> None:
    """Make the folder for this user alone, or make sure that nobody else can put anything into it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        entry, details = folder.lstat(), folder.stat()
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be used to keep environments: {error.strerror}. Set FUMEHOOD_HOME to another folder."
        ) from error
    # A link that somebody else made may lead to another place tomorrow.
    if {entry.st_uid, details.st_uid} != {os.geteuid()}:
        raise UsageError(
            f"{folder} belongs to somebody else (uid {details.st_uid}); set FUMEHOOD_HOME to your own folder"
        )
    if details.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(f"{folder} can be written by others; run `chmod go-w {folder}` or set FUMEHOOD_HOME")
