"""Ctrl-C and its relatives: the first one ends the run, further ones change nothing, and nothing is left behind."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import anyio

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedError(Exception):
    """Somebody asked us to stop; `signal` says how."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.signal = number


class Interruption:
    """Takes the signals over for the rest of the process's life: not even the clean-up may be interrupted."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._cancel: Callable[[], object] | None = None
        self._blocks = False
        for number in _SIGNALS:
            # Whoever started us with a signal ignored (nohup) wants it ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.signal = self.signal or number
        if self._cancel:
            self._cancel()
        if self._blocks:
            raise StoppedError(self.signal)

    @contextmanager
    def cancelling(self, scope: anyio.CancelScope) -> Iterator[None]:
        """A signal cancels the scope, also one that came before."""
        loop = asyncio.get_running_loop()
        self._cancel = lambda: loop.call_soon_threadsafe(scope.cancel)
        if self.signal:
            scope.cancel()
        try:
            yield
        finally:
            self._cancel = None

    def check(self) -> None:
        """For work that asks now and then whether to go on: its clean-up is not interrupted again."""
        if self.signal:
            raise StoppedError(self.signal)

    @contextmanager
    def ending_what_blocks(self) -> Iterator[None]:
        """A write to a reader that does not read blocks the event loop, which then could not cancel anything."""
        self._blocks = True
        try:
            if self.signal:
                raise StoppedError(self.signal)
            yield
        finally:
            self._blocks = False
