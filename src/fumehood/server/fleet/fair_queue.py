"""A bounded queue of openings that wait for room, served round robin by tenant: a flood of one delays itself."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from fumehood.server.fleet.choice import SandboxNeeds
from fumehood.server.sandboxes.errors import NoCapacityError

WAIT_SECONDS = 10.0
_Turn = asyncio.Future[None]


class FairQueue:
    def __init__(self, most: int = 10_000, most_of_tenant: int = 1_000) -> None:
        self._most, self._most_of_tenant = most, most_of_tenant
        self._waiting: OrderedDict[str, dict[_Turn, SandboxNeeds]] = OrderedDict()
        """The tenant whose turn is next comes first, and of each tenant the opening that came first."""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    async def wait(self, needs: SandboxNeeds, seconds: float = WAIT_SECONDS, *, is_next: bool = False) -> None:
        """Until it is this one's turn; NoCapacityError if the queue is full, or after so long.

        `is_next` is for one that has had its turn, and found the room taken: it does not begin anew at the end.
        """
        own = self._waiting.get(needs.tenant, {})
        if self._length >= self._most or len(own) >= self._most_of_tenant:
            raise NoCapacityError(f"{self._length} openings wait for room on a worker already; try again later")
        turn: _Turn = asyncio.get_running_loop().create_future()
        if is_next:
            self._waiting[needs.tenant] = {turn: needs, **own}
            self._waiting.move_to_end(needs.tenant, last=False)
        else:
            self._waiting.setdefault(needs.tenant, own)[turn] = needs
        self._length += 1
        try:
            async with asyncio.timeout(seconds):
                await turn
        except TimeoutError:
            raise NoCapacityError("no worker has had room for a sandbox for some seconds; try again later") from None
        finally:
            self._remove(needs.tenant, turn)

    def wake(self, count: int, fits: Callable[[SandboxNeeds], bool]) -> None:
        """There is room for so many more, of those that fit."""
        for _ in range(count):
            found = self._next(fits)
            if found is None:
                return
            tenant, turn = found
            self._remove(tenant, turn)
            if tenant in self._waiting:
                self._waiting.move_to_end(tenant)
            turn.set_result(None)

    def _next(self, fits: Callable[[SandboxNeeds], bool]) -> tuple[str, _Turn] | None:
        for tenant, own in self._waiting.items():
            for turn, needs in own.items():
                if not turn.done() and fits(needs):
                    return tenant, turn
        return None

    def _remove(self, tenant: str, turn: _Turn) -> None:
        own = self._waiting.get(tenant, {})
        if own.pop(turn, None) is not None:
            self._length -= 1
            if not own:
                del self._waiting[tenant]
