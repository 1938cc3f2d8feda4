"""A watchdog on the host for guests, which keep the time of their runs themselves as long as they can.

A guest that was stopped, or hangs, ends nothing. So when a run is overdue the guest is asked whether it is there; one
that answers is merely slow, and may take as long as it needs. One that does not answer is lost.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio

# An answer that is overdue by less than this may be in transit.
_GRACE_SECONDS = 0.25
_ASK_AGAIN_SECONDS = 1.0

IsLost = Callable[[float], Awaitable[bool]]
"""Whether the guest does not answer any more, if something is overdue by so many seconds."""


class GuestLostError(Exception):
    """The guest does not answer, and ends nothing any more."""


class Watchdog:
    """Waits for descriptors; raises GuestLostError if the guest does not answer when it is overdue."""

    def __init__(self, is_lost: IsLost, seconds: float) -> None:
        self._is_lost = is_lost
        self._waits: set[anyio.CancelScope] = set()
        self.allow(seconds)

    def allow(self, seconds: float) -> None:
        """Restarts the clock, also for those who wait already."""
        self._due = time.monotonic() + seconds
        self._asks_at = self._due + _GRACE_SECONDS
        for scope in self._waits:
            scope.deadline = anyio.current_time() + seconds + _GRACE_SECONDS

    async def wait_readable(self, descriptor: int) -> None:
        while True:
            with self._until_asked() as scope:
                await anyio.wait_readable(descriptor)
            await self.check()
            if not scope.cancelled_caught:
                return

    async def wait_writable(self, descriptor: int) -> None:
        """Or until it is time to ask the guest, which the next call does."""
        with self._until_asked():
            await anyio.wait_writable(descriptor)
        await self.check()

    @contextmanager
    def _until_asked(self) -> Iterator[anyio.CancelScope]:
        with anyio.move_on_after(self._asks_at - time.monotonic()) as scope:
            self._waits.add(scope)
            try:
                yield scope
            finally:
                self._waits.discard(scope)

    async def check(self) -> None:
        if time.monotonic() < self._asks_at:
            return
        if await self._is_lost(time.monotonic() - self._due):
            raise GuestLostError
        self._asks_at = time.monotonic() + _ASK_AGAIN_SECONDS
