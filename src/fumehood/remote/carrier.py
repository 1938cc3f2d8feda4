"""What carries messages between the two ends: a WebSocket, a pair of subjects."""

from __future__ import annotations

from typing import Protocol


class CarrierLostError(Exception):
    """The carrier is over; says why, as far as it is known."""


class MessageCarrier(Protocol):
    """Whole messages in order, until it is lost. `receive` and `send` then raise CarrierLostError."""

    async def send(self, data: bytes) -> None: ...

    async def receive(self) -> bytes: ...

    async def close(self) -> None: ...
