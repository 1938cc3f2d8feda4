"""A pair of subjects as a carrier: one for the messages of each end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from fumehood.remote.carrier import CarrierLostError

if TYPE_CHECKING:
    from fumehood.cluster.nats_client import NatsClient

_MOST_WAITING_BYTES = 16 * 1024 * 1024
"""More than all windows of a link let in: an end that sends more does not keep to them."""


class SubjectCarrier:
    """`deliver` gets what has come on the other subject. `forget` is called once, when it is over.

    Messages are lost when a connection to NATS is: both ends then lose their carriers, and use new ones.
    """

    def __init__(self, client: NatsClient, subject: str, forget: Callable[[], object], answer_to: str = "") -> None:
        """With `answer_to`, NATS says there when no process hears the first message."""
        self._client, self._subject, self._forget = client, subject, forget
        self._answer_to = answer_to
        self._inbox: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._news = asyncio.Event()
        self._lost: str | None = None

    async def send(self, data: bytes) -> None:
        from nats.errors import Error

        if self._lost is not None:
            raise CarrierLostError(self._lost)
        try:
            if self._client.is_congested:
                await self._client.wait_for_room()
            self._client.send(self._subject, data, self._answer_to)
        except (Error, OSError) as error:
            self.lose(f"NATS does not take the message: {error}")
            raise CarrierLostError(f"NATS does not take the message: {error}") from error
        self._answer_to = ""

    def deliver(self, data: bytes) -> None:
        """An empty message is the last one."""
        if not data:
            self.lose("the other end has hung up")
            return
        self._inbox.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes > _MOST_WAITING_BYTES:
            self.lose("the other end sends more than it was allowed")
        self._news.set()

    async def receive(self) -> bytes:
        while not self._inbox:
            if self._lost is not None:
                raise CarrierLostError(self._lost)
            self._news.clear()
            await self._news.wait()
        data = self._inbox.popleft()
        self._waiting_bytes -= len(data)
        return data

    def lose(self, reason: str) -> None:
        """The first reason counts."""
        if self._lost is None:
            self._lost = reason
            self._news.set()
            self._forget()

    async def close(self) -> None:
        """Notifies the other end, if the way to it is there."""
        if self._lost is None:
            with suppress(CarrierLostError):
                await self.send(b"")
            self.lose("the carrier is closed")
