"""Locks by which a server knows that another of the same state folder has ended, without waiting until it is missed.

Each server holds a lock on a file that has its name. The kernel releases it when the process ends, however it ends. A
lock counts on the machine, and since the start of it, that made it: a folder may be shared by machines whose kernels do
not know each other's locks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fumehood.host.locks import lock_exclusive, try_exclusive

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_TURN = "turn.lock"


class InstanceLocks:
    def __init__(self, state: Path) -> None:
        self._folder = state / "instances"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._boot = _BOOT.read_text().strip()

    @contextmanager
    def held(self, instance: str) -> Iterator[None]:
        """As long as this instance lives."""
        lock = lock_exclusive(self._folder / f"{instance}.{self._boot}")
        try:
            yield
        finally:
            lock.remove()
            lock.close()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """For what one server of the folder does at a time. Blocks."""
        lock = lock_exclusive(self._folder / _TURN)
        try:
            yield
        finally:
            lock.close()

    def names(self) -> frozenset[str]:
        """Instances that live, or are not known to have ended."""
        return frozenset(path.name.partition(".")[0] for path in self._folder.glob("srv_*"))

    def take_released(self) -> list[str]:
        """Instances of this machine whose processes have ended; each is returned once."""
        return [each for path in self._folder.glob("srv_*") if (each := self._taken(path))]

    def _taken(self, path: Path) -> str | None:
        lock = try_exclusive(path)
        if lock is None:
            return None
        lock.remove()
        lock.close()
        instance, _, boot = path.name.partition(".")
        return instance if boot == self._boot else None
