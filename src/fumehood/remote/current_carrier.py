"""The carrier that a link uses at the moment.

A client that comes back may do so before its old connection is known to be lost. So a new carrier takes the place of
the one in use: the client knows which of them is alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fumehood.guest.contract.frames import FrameError
from fumehood.remote.carrier import MessageCarrier
from fumehood.remote.link import Link


class CurrentCarrier:
    """At most one carrier is in use, however many come at once. `clock` is what `lost_at` is read from.

    `check_open` raises once no carrier may follow. `close` gets the cause when what came is not of the protocol.
    """

    def __init__(
        self,
        link: Link,
        clock: Callable[[], float],
        *,
        check_open: Callable[[], None],
        close: Callable[[str], Awaitable[None]],
        lost_at: float | None = None,
    ) -> None:
        self._link, self._clock = link, clock
        self._check_open, self._close = check_open, close
        self._task: asyncio.Task[None] | None = None
        self.lost_at = lost_at
        """When the last carrier was lost; None while one is in use, and before the first."""

    async def serve(self, carrier: MessageCarrier, received_by_them: int) -> None:
        """Until the carrier is lost, or another one takes its place. Raises FrameError of the link."""
        await self.hang_up()
        self._check_open()
        try:
            await self._use(carrier, received_by_them)
        except FrameError:
            await self._close("protocol")
            raise

    async def _use(self, carrier: MessageCarrier, received_by_them: int) -> None:
        self.lost_at = None
        task = self._task = asyncio.ensure_future(self._link.use(carrier, received_by_them))
        try:
            await asyncio.shield(asyncio.wait([task]))
            task.result()
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            if self._task is task:
                self._task, self.lost_at = None, self._clock()

    async def hang_up(self) -> None:
        """When this returns no carrier is in use, not even one that came while the last was ended."""
        while (task := self._task) is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if self._task is task:
                self._task = None
