"""A folder for what a build needs meanwhile. It goes with the build, or at the next one if a build was killed."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fumehood.host.folders import HOME, find_home, remove_folder
from fumehood.host.locks import Lock, lock_exclusive, try_folder

_PREFIX = "building-"
_DYING_SECONDS, _PAUSE_SECONDS = 10.0, 0.02


@dataclass(frozen=True, slots=True)
class BuildDir:
    folder: Path
    lock: Lock
    """Held by every process that works here, children included: the folder stays as long as one of them runs."""


@contextmanager
def open_build_dir() -> Iterator[BuildDir]:
    place = _place()
    HOME.make(place.parent)
    HOME.make(place)
    # Between making a folder and locking it no other build may sweep.
    with closing(lock_exclusive(place / "lock")):
        _sweep(place)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        lock = try_folder(folder)
        assert lock is not None
    try:
        yield BuildDir(folder, lock)
    finally:
        lock.close()
        _clear_up(folder)


def remove_abandoned() -> list[str]:
    """What killed builds left: their names."""
    place = _place()
    if not place.is_dir():
        return []
    # Another user who could write there would choose which files this process removes.
    HOME.make(place.parent)
    HOME.make(place)
    with closing(lock_exclusive(place / "lock")):
        return _sweep(place)


def _place() -> Path:
    return find_home(os.environ) / "images"


def _clear_up(folder: Path) -> None:
    """When the last child that was killed is gone too; one that does not go leaves the folder to the next build."""
    for _ in range(int(_DYING_SECONDS / _PAUSE_SECONDS)):
        lock = try_folder(folder)
        if lock is not None:
            remove_folder(folder)
            lock.close()
            return
        time.sleep(_PAUSE_SECONDS)


def _sweep(folder: Path) -> list[str]:
    removed: list[str] = []
    for place in folder.glob(f"{_PREFIX}*"):
        lock = try_folder(place)
        if lock is not None:
            remove_folder(place)
            lock.close()
            removed.append(str(place))
    return removed
