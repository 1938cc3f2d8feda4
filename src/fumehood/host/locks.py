"""Locks between processes: shared or exclusive, on a file beside what it protects, or on a folder itself.

The kernel releases a lock when the last process that holds its descriptor ends, so nothing is left after a crash.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

_POLL_SECONDS = 0.05
_FILE = os.O_RDWR | os.O_CREAT
_FOLDER = os.O_RDONLY | os.O_DIRECTORY


class Lock:
    """A lock that is held until `close`; children that inherit the descriptor hold it as well."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self.descriptor = descriptor

    def close(self) -> None:
        os.close(self.descriptor)

    def remove(self) -> None:
        """Remove the file of an exclusive lock: processes that wait for it notice, and take a new one."""
        self._path.unlink()


def try_shared(path: Path) -> Lock | None:
    return _lock(path, _FILE, fcntl.LOCK_SH | fcntl.LOCK_NB)


def try_exclusive(path: Path) -> Lock | None:
    """Writes the number of this process into the file, for `holder`."""
    lock = _lock(path, _FILE, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if lock:
        os.pwrite(lock.descriptor, f"{os.getpid():<20}".encode(), 0)
    return lock


def try_folder(path: Path) -> Lock | None:
    """An exclusive lock on an existing folder itself."""
    return _lock(path, _FOLDER, fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock_exclusive(path: Path) -> Lock:
    """Blocks until it is free: for what is held for a moment only."""
    while (lock := _lock(path, _FILE, fcntl.LOCK_EX)) is None:
        pass  # the file was removed by the process that held it; the next attempt makes a new one
    return lock


def lock_shared(path: Path) -> Lock:
    """Blocks while there is an exclusive one."""
    while (lock := _lock(path, _FILE, fcntl.LOCK_SH)) is None:
        pass  # as above
    return lock


def wait_for(attempt: Callable[[], Lock | None], on_wait: Callable[[], None], heartbeat: Callable[[], None]) -> Lock:
    """Try until it works; `on_wait` is called once, if it does not work at once. What `heartbeat` raises ends it."""
    lock = attempt()
    if lock is None:
        on_wait()
    while lock is None:
        heartbeat()
        time.sleep(_POLL_SECONDS)  # the kernel wakes no process that also has to notice cancellation
        lock = attempt()
    return lock


def holder(path: Path) -> str:
    """The process that has, or had, the exclusive lock: a hint for people, nothing to rely on."""
    try:
        return path.read_text().strip() or "unknown"
    except OSError:
        return "unknown"


def _lock(path: Path, flags: int, kind: int) -> Lock | None:
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, kind)
        if _is_same_file(descriptor, path):
            return Lock(path, descriptor)
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _is_same_file(descriptor: int, path: Path) -> bool:
    """False when the file was removed between opening and locking it."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
