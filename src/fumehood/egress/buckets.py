"""So many at once, and so many more a second."""

from __future__ import annotations

import time
from collections.abc import Callable


class Bucket:
    """Full at first. Not thread-safe."""

    def __init__(self, size: float, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._size, self._per_second, self._clock = size, per_second, clock
        self._level, self._seen = size, clock()

    def take(self) -> bool:
        """One out of it, if there is one."""
        now = self._clock()
        self._level = min(self._size, self._level + (now - self._seen) * self._per_second)
        self._seen = now
        if self._level < 1:
            return False
        self._level -= 1
        return True

    def change(self, size: float, per_second: float) -> None:
        """Other figures from now on; what has been taken stays taken."""
        self._size, self._per_second = size, per_second
