"""One carrier of a link is in use at a time: the newest."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest
from carriers import pair

from fumehood.errors import LostError
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


class Owner:
    """What a link is for."""

    def __init__(self) -> None:
        self.causes: list[str] = []

    def check_open(self) -> None:
        if self.causes:
            raise LostError("closed")

    async def close(self, cause: str) -> None:
        self.causes.append(cause)

    def carrier_of(self, link: Link, clock: Callable[[], float] = lambda: 7.0) -> CurrentCarrier:
        return CurrentCarrier(link, clock, check_open=self.check_open, close=self.close)


async def test_of_carriers_that_come_at_once_one_is_in_use() -> None:
    link = CountingLink()
    current = Owner().carrier_of(link, itertools.count().__next__)
    first, *others = (pair()[0] for _ in range(5))
    uses = [asyncio.ensure_future(current.serve(first, 0))]
    await link.wait_for_use(first)
    uses += [asyncio.ensure_future(current.serve(each, 0)) for each in others]
    await asyncio.wait(uses, return_when=asyncio.FIRST_COMPLETED)
    await link.wait_for_use(others[-1])
    assert link.most == 1
    assert current.lost_at is None
    await current.hang_up()
    assert link.in_use == []
    await asyncio.gather(*uses, return_exceptions=True)


async def test_the_time_counts_from_the_loss_of_the_last_carrier() -> None:
    current = Owner().carrier_of(CountingLink())
    here, there = pair()
    assert current.lost_at is None
    use = asyncio.ensure_future(current.serve(here, 0))
    await there.close()
    await use
    assert current.lost_at == 7.0


async def test_an_end_that_cannot_be_right_is_lost_with_its_error_and_closes_the_owner() -> None:
    owner = Owner()
    current = owner.carrier_of(CountingLink())
    with pytest.raises(FrameError):
        await current.serve(pair()[0], 99)
    assert current.lost_at == 7.0
    assert owner.causes == ["protocol"]


async def test_no_carrier_follows_the_end_of_the_owner_also_one_that_waited_for_another() -> None:
    link, owner = CountingLink(), Owner()
    current = owner.carrier_of(link)
    first = pair()[0]
    use = asyncio.ensure_future(current.serve(first, 0))
    await link.wait_for_use(first)
    late = asyncio.ensure_future(current.serve(pair()[0], 0))
    await owner.close("expired")
    with pytest.raises(LostError):
        await late
    assert link.in_use == []
    await asyncio.gather(use, return_exceptions=True)
