"""A pool of started, unused guests, so that opening a sandbox need not wait for one.

Each serves one sandbox and is thrown away. They are kept for designs that are used again and again: when one is asked
for a second time before a spare would have been thrown away, the next is started behind it. Belongs to the backend's
event loop, whose end is theirs.

Starting and removing one is work for the machine: neither is done while a caller waits for something else.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from fumehood.errors import FumehoodError

MOST_SPARE = 4
SPARE_SECONDS = 60.0
# A short run in the one that was taken is over by then.
_REFILL_DELAY_SECONDS = 0.1
_MOST_REMEMBERED = 256


class PooledGuest(Protocol):
    async def rest(self) -> None:
        """Before it waits for a sandbox: it need not do anything until `answers` is asked."""
        ...

    async def answers(self) -> bool: ...

    async def close(self) -> None: ...


Guest = TypeVar("Guest", bound=PooledGuest)


class GuestPool(Generic[Guest]):
    def __init__(self, most_spare: int = MOST_SPARE) -> None:
        self._most_spare = most_spare
        self._spares: OrderedDict[str, tuple[Guest, float]] = OrderedDict()
        self._taken_at: OrderedDict[str, float] = OrderedDict()
        self._refills: set[asyncio.Task[None]] = set()
        self._removals: set[asyncio.Task[None]] = set()
        self._filling: set[str] = set()
        self._is_closed = False

    async def take(self, key: str, start: Callable[[], Awaitable[Guest]]) -> Guest:
        """A new one for the caller alone. Several callers wait side by side, never for each other."""
        guest = await self._take_spare(key)
        if time.monotonic() - self._taken_at.get(key, -math.inf) < SPARE_SECONDS:
            _keep(self._refills, self._refill(key, start))
        self._remember(key)
        return guest or await start()

    async def _take_spare(self, key: str) -> Guest | None:
        """None also when it does not answer: it may have been paused, or killed, since it was started."""
        if key not in self._spares:
            return None
        guest, _ = self._spares.pop(key)
        is_ready = False
        try:
            is_ready = await guest.answers()
        finally:
            if not is_ready:
                self.discard(guest)
        return guest if is_ready else None

    def discard(self, guest: Guest) -> None:
        """Removes an unused guest in the background, while the caller goes on."""
        _keep(self._removals, guest.close())

    def _remember(self, key: str) -> None:
        self._taken_at[key] = time.monotonic()
        self._taken_at.move_to_end(key)
        if len(self._taken_at) > _MOST_REMEMBERED:
            self._taken_at.popitem(last=False)

    async def _refill(self, key: str, start: Callable[[], Awaitable[Guest]]) -> None:
        if key in self._filling or key in self._spares or self._is_closed:
            return
        self._filling.add(key)
        try:
            await asyncio.sleep(_REFILL_DELAY_SECONDS)
            guest = await self._rested(start)
        except FumehoodError:
            return  # opening the next sandbox fails in the same way, and raises the error
        finally:
            self._filling.discard(key)
        if self._is_closed:
            await guest.close()
            return
        self._spares[key] = (guest, time.monotonic())
        if len(self._spares) > self._most_spare:
            _, (oldest, _) = self._spares.popitem(last=False)
            self.discard(oldest)
        asyncio.get_running_loop().call_later(SPARE_SECONDS, self._expire, key, guest)

    async def _rested(self, start: Callable[[], Awaitable[Guest]]) -> Guest:
        guest = await start()
        try:
            await guest.rest()
        except BaseException:
            self.discard(guest)
            raise
        return guest

    def _expire(self, key: str, guest: Guest) -> None:
        if key in self._spares and self._spares[key][0] is guest:
            del self._spares[key]
            self.discard(guest)

    async def close(self) -> None:
        """When this returns, none of those that were ever started here is left."""
        self._is_closed = True
        for spare, _ in self._spares.values():
            self.discard(spare)
        self._spares.clear()
        for refill in self._refills:
            refill.cancel()
        await asyncio.gather(*self._refills, return_exceptions=True)
        await asyncio.gather(*self._removals, return_exceptions=True)


def _keep(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    """Starts a background task, which does not outlive the pool."""
    task = asyncio.ensure_future(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
