"""Ctrl-C and its relatives: signals to `hood` are handed to the work under way, and nothing is left behind."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import anyio

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedBySignalError(Exception):
    """A signal ended the work under way; `signal` is its number."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.signal = number


class Interruption:
    """Takes the signals over for the rest of the process's life: not even the clean-up may be interrupted."""

    def __init__(self) -> None:
        self.signal: int | None = None
        """The first one that arrived."""
        self._receive: Callable[[int], object] | None = None
        self._blocks = False
        for number in _SIGNALS:
            # A signal that was ignored when we were started (nohup) stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        is_first = self.signal is None
        self.signal = self.signal or number
        if self._receive:
            self._receive(number)
        if self._blocks and not is_first:
            raise StoppedBySignalError(self.signal)

    @contextmanager
    def handing_to(self, receive: Callable[[int], object]) -> Iterator[None]:
        """Each signal is handed to `receive`, in the event loop; also the one that came before."""
        loop = asyncio.get_running_loop()
        self._receive = lambda number: loop.call_soon_threadsafe(receive, number)
        if self.signal:
            receive(self.signal)
        try:
            yield
        finally:
            self._receive = None

    @contextmanager
    def cancelling(self, scope: anyio.CancelScope) -> Iterator[None]:
        """A signal cancels the scope, also one that came before."""
        with self.handing_to(lambda _: scope.cancel()):
            yield

    def check(self) -> None:
        """Raises after a signal, for work that polls it; the clean-up is not interrupted again."""
        if self.signal:
            raise StoppedBySignalError(self.signal)

    @contextmanager
    def ending_what_blocks(self) -> Iterator[None]:
        """A second signal breaks off a write that blocks the event loop, which then cannot cancel anything."""
        self._blocks = True
        try:
            yield
        finally:
            self._blocks = False
