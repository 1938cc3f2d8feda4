"""Waiting for those who write at the same moment: not for long, and not for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fumehood.errors import AuditError

# Whoever writes needs a fraction of a millisecond, unless it was stopped in the middle.
_PAUSES_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005)
_LIMIT_SECONDS = 30.0

T = TypeVar("T")


class BusyError(Exception):
    """Somebody else is writing; try again in a moment."""


class Patience:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._deadline = time.monotonic() + _LIMIT_SECONDS
        self._pauses = iter(_PAUSES_SECONDS)

    def next_pause(self) -> float:
        """How long to wait before the next try; AuditError when it has been long enough."""
        if time.monotonic() > self._deadline:
            raise AuditError(
                f"the audit log {self._path} has been locked for {_LIMIT_SECONDS:.0f} seconds, and without it nothing "
                f"runs. `fuser {self._path}` names the processes that use it; one of them may be stopped."
            ) from None
        return next(self._pauses, _PAUSES_SECONDS[-1])


def patiently(path: Path, action: Callable[[], T]) -> T:
    """For those who may block."""
    patience = Patience(path)
    while True:
        try:
            return action()
        except BusyError:
            time.sleep(patience.next_pause())
