"""A bounded queue of openings that wait for room, served round robin by tenant: a flood of one delays itself."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

from fumehood.server.sandboxes.errors import NoCapacityError


class FairQueue:
    def __init__(self, most: int = 10_000, most_of_tenant: int = 1_000, seconds: float = 10.0) -> None:
        self._most, self._most_of_tenant, self._seconds = most, most_of_tenant, seconds
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """The tenant whose turn is next comes first."""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    async def wait(self, tenant: str) -> None:
        """Until it is this one's turn; NoCapacityError if the queue is full, or after too long."""
        own = self._waiting.get(tenant, deque[asyncio.Future[None]]())
        if self._length >= self._most or len(own) >= self._most_of_tenant:
            raise NoCapacityError(f"{self._length} openings wait for room on a worker already; try again later")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, own).append(turn)
        self._length += 1
        try:
            async with asyncio.timeout(self._seconds):
                await turn
        except TimeoutError:
            raise NoCapacityError(f"no worker had room for a sandbox in {self._seconds:g} s; try again later") from None
        finally:
            self._leave(tenant, turn)

    def _leave(self, tenant: str, turn: asyncio.Future[None]) -> None:
        """One that was given a turn and does not take it hands it to the next."""
        own = self._waiting.get(tenant)
        if own is not None and turn in own:
            own.remove(turn)
            self._length -= 1
            if not own:
                del self._waiting[tenant]

    def wake(self, count: int = 1) -> None:
        """There is room for so many more."""
        while count > 0 and self._waiting:
            tenant, own = self._waiting.popitem(last=False)
            turn = own.popleft()
            self._length -= 1
            if own:
                self._waiting[tenant] = own
            if not turn.done():
                turn.set_result(None)
                count -= 1
