"""One carrier of a link is in use at a time: the newest."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from carriers import pair

from fumehood.guest.contract.frames import FrameError
from fumehood.remote.carrier import MessageCarrier
from fumehood.remote.current_carrier import CurrentCarrier
from fumehood.remote.link import Link

pytestmark = pytest.mark.anyio


class CountingLink(Link):
    """A link that knows which carriers are in use, and how many were at most."""

    def __init__(self) -> None:
        super().__init__(lambda header, body, size: None)
        self.in_use: list[MessageCarrier] = []
        self.most = 0
        self._changed = asyncio.Event()

    async def use(self, carrier: MessageCarrier, received_by_them: int) -> None:
        self.in_use.append(carrier)
        self.most = max(self.most, len(self.in_use))
        self._changed.set()
        try:
            await super().use(carrier, received_by_them)
        finally:
            self.in_use.remove(carrier)
            self._changed.set()

    async def wait_for_use(self, carrier: MessageCarrier) -> None:
        async with asyncio.timeout(10):
            while self.in_use != [carrier]:
                self._changed.clear()
                await self._changed.wait()


async def test_of_carriers_that_come_at_once_one_is_in_use() -> None:
    link = CountingLink()
    current = CurrentCarrier(link, itertools.count().__next__)
    first, *others = (pair()[0] for _ in range(5))
    uses = [asyncio.ensure_future(current.use(first, 0))]
    await link.wait_for_use(first)
    uses += [asyncio.ensure_future(current.use(each, 0)) for each in others]
    await asyncio.wait(uses, return_when=asyncio.FIRST_COMPLETED)
    await link.wait_for_use(others[-1])
    assert link.most == 1
    assert current.lost_at is None
    await current.hang_up()
    assert link.in_use == []
    await asyncio.gather(*uses, return_exceptions=True)


async def test_the_time_counts_from_the_loss_of_the_last_carrier() -> None:
    current = CurrentCarrier(CountingLink(), lambda: 7.0)
    here, there = pair()
    assert current.lost_at is None
    use = asyncio.ensure_future(current.use(here, 0))
    await there.close()
    await use
    assert current.lost_at == 7.0


async def test_an_end_that_cannot_be_right_is_lost_with_its_error() -> None:
    current = CurrentCarrier(CountingLink(), lambda: 7.0)
    with pytest.raises(FrameError):
        await current.use(pair()[0], 99)
    assert current.lost_at == 7.0
