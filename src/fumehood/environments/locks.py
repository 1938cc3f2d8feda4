"""One lock for each environment: shared by all that use it, exclusive for whoever builds or removes it.

A lock dies with the process that holds it, so nothing has to be cleaned up after a crash. The sandbox of an installer
dies with that process too, a moment later; until then it writes into the folder that it was shown, which nobody uses.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

_POLL_SECONDS = 0.05


class Lock:
    """Held from the call that gives it out until `close`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self.descriptor = descriptor

    def close(self) -> None:
        os.close(self.descriptor)

    def remove(self) -> None:
        """Only with an exclusive lock: those who waited for it notice, and take a new one."""
        self._path.unlink()


def try_shared(path: Path) -> Lock | None:
    return _try(path, fcntl.LOCK_SH)


def try_exclusive(path: Path) -> Lock | None:
    lock = _try(path, fcntl.LOCK_EX)
    if lock:
        os.pwrite(lock.descriptor, f"{os.getpid():<20}".encode(), 0)
    return lock


def wait_for(attempt: Callable[[], Lock | None], on_wait: Callable[[], None], heartbeat: Callable[[], None]) -> Lock:
    """Try until it works; `on_wait` is called once, if it does not work at once."""
    lock = attempt()
    if lock is None:
        on_wait()
    while lock is None:
        heartbeat()
        time.sleep(_POLL_SECONDS)  # the kernel wakes nobody who also has to listen for cancellation
        lock = attempt()
    return lock


def holder(path: Path) -> str:
    """The process that has, or had, the exclusive lock: a hint for people, nothing to rely on."""
    try:
        return path.read_text().strip() or "unknown"
    except OSError:
        return "unknown"


def _try(path: Path, kind: int) -> Lock | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
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
