"""A folder for what a build needs meanwhile. It goes with the build, or at the next one if a build was killed."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fumehood.environments.home import find_home, make_private
from fumehood.environments.sealing import discard

_PREFIX = "building-"
_DYING_SECONDS, _PAUSE_SECONDS = 10.0, 0.02


@dataclass(frozen=True, slots=True)
class Workshop:
    folder: Path
    lock: int
    """Held by whoever works here, children included: as long as one lives the folder stays."""


@contextmanager
def open_workshop() -> Iterator[Workshop]:
    place = _place()
    make_private(place.parent)
    make_private(place)
    with _alone(place):
        _sweep(place)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        lock = _try_lock(folder)
        assert lock is not None
    try:
        yield Workshop(folder, lock)
    finally:
        os.close(lock)
        _clear_up(folder)


def remove_abandoned() -> list[str]:
    """What killed builds left: their names."""
    place = _place()
    if not place.is_dir():
        return []
    # Whoever else could write there would choose what is removed in our name.
    make_private(place.parent)
    make_private(place)
    with _alone(place):
        return _sweep(place)


def _place() -> Path:
    return find_home(os.environ) / "images"


def _clear_up(folder: Path) -> None:
    """When the last child that was killed is gone too; one that does not go leaves the folder to the next build."""
    for _ in range(int(_DYING_SECONDS / _PAUSE_SECONDS)):
        lock = _try_lock(folder)
        if lock is not None:
            discard(folder)
            os.close(lock)
            return
        time.sleep(_PAUSE_SECONDS)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Between making a folder and locking it nobody may sweep."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sweep(folder: Path) -> list[str]:
    removed: list[str] = []
    for place in folder.glob(f"{_PREFIX}*"):
        lock = _try_lock(place)
        if lock is not None:
            discard(place)
            os.close(lock)
            removed.append(str(place))
    return removed


def _try_lock(folder: Path) -> int | None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
