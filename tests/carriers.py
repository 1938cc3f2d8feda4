"""Two ends of a carrier in memory, which can be cut at any message."""

from __future__ import annotations

import asyncio

from fumehood.remote.carrier import CarrierLostError


class MemoryCarrier:
    """`left` is how many messages it still carries from this end before it breaks for both."""

    def __init__(self, left: int = 1_000_000) -> None:
        self.left = left
        self.other: MemoryCarrier = self
        self.sent = 0
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue(4)
        self._cut = asyncio.Event()

    async def send(self, data: bytes) -> None:
        if self.left <= 0:
            self.cut()
        if self._cut.is_set():
            raise CarrierLostError("cut")
        self.left -= 1
        self.sent += len(data)
        await self._unless_cut(self.other._inbox.put(data))

    async def receive(self) -> bytes:
        data = await self._unless_cut(self._inbox.get())
        assert data is not None
        return data

    async def _unless_cut(self, work):
        task, cut = asyncio.ensure_future(work), asyncio.ensure_future(self._cut.wait())
        await asyncio.wait([task, cut], return_when=asyncio.FIRST_COMPLETED)
        cut.cancel()
        if task.done():
            return task.result()
        task.cancel()
        raise CarrierLostError("cut")

    def cut(self) -> None:
        for end in (self, self.other):
            end._cut.set()

    async def close(self) -> None:
        self.cut()


def pair(left: int = 1_000_000, right: int = 1_000_000) -> tuple[MemoryCarrier, MemoryCarrier]:
    one, other = MemoryCarrier(left), MemoryCarrier(right)
    one.other, other.other = other, one
    return one, other
