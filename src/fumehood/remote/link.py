"""Numbered messages over one carrier after another.

A message is kept until the other end has confirmed it, and sent again on the next carrier if it had not. So each
arrives once and in order, however often a connection breaks, as long as both ends live.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from fumehood.guest.contract import frames
from fumehood.guest.contract.frames import FrameError, Header
from fumehood.remote.carrier import CarrierLostError, MessageCarrier

Deliver = Callable[[Header, bytes, int], None]
"""Header, body, and how many bytes the header had."""

MOST_UNCONFIRMED_BYTES = 4 * 1024 * 1024
# Messages that do not wait for room are answers to the other end, which has to confirm them before it causes more.
_MOST_KEPT_BYTES = 2 * MOST_UNCONFIRMED_BYTES
_KEPT_MESSAGE_BYTES = 256
_CONFIRM_BYTES = 256 * 1024
_CONFIRM_MESSAGES = 64
_MAX_HEADER_BYTES = 256 * 1024
_MAX_BODY_BYTES = 64 * 1024
_JOINED_BYTES = 32 * 1024


class LinkClosedError(Exception):
    """The link is over: what was not delivered by now never will be."""


class _Kept(NamedTuple):
    number: int
    data: bytes


class Link:
    """One end. `deliver` gets each message of the other end once, in order."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._kept: deque[_Kept] = deque()
        self._kept_bytes = 0
        self._last_sent = 0
        """The number of the newest message of ours."""
        self.received = 0
        """The number of the newest message of the other end."""
        self._confirmed_to_them = 0
        self._unconfirmed_bytes = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._is_closed = False

    async def send(self, header: Header, body: bytes = b"") -> None:
        """Returns when it is kept for sending. Waits while the other end is far behind."""
        while not self._room.is_set() and not self._is_closed:
            await self._room.wait()
        self.post(header, body)

    def post(self, header: Header, body: bytes = b"") -> None:
        """Likewise without waiting, for short messages that flow control itself needs."""
        if self._is_closed:
            raise LinkClosedError
        self._last_sent += 1
        data = frames.encode({**header, "n": self._last_sent}, body)
        self._kept.append(_Kept(self._last_sent, data))
        self._kept_bytes += len(data) + _KEPT_MESSAGE_BYTES
        if self._kept_bytes > MOST_UNCONFIRMED_BYTES:
            self._room.clear()
        self._news.set()

    async def use(self, carrier: MessageCarrier, received_by_them: int) -> None:
        """Carries messages until the carrier is lost, or the link is closed and everything is sent.

        `received_by_them` is what the other end said when the carrier was made.
        """
        if not self._first_kept() - 1 <= received_by_them <= self._last_sent:
            raise FrameError(f"the other end has {received_by_them} messages of {self._last_sent}, which cannot be")
        self._forget(received_by_them)
        reader = asyncio.ensure_future(self._read(carrier))
        writer = asyncio.ensure_future(self._write(carrier, received_by_them))
        try:
            await asyncio.wait([reader, writer], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reader, writer):
                task.cancel()
            ends = await asyncio.gather(reader, writer, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, CarrierLostError):
                raise end

    def close(self) -> None:
        """Nothing more is accepted; what was is sent by a carrier that is in use."""
        self._is_closed = True
        self._news.set()
        self._room.set()

    def _first_kept(self) -> int:
        return self._kept[0].number if self._kept else self._last_sent + 1

    def _forget(self, confirmed: int) -> None:
        while self._kept and self._kept[0].number <= confirmed:
            self._kept_bytes -= len(self._kept.popleft().data) + _KEPT_MESSAGE_BYTES
        if self._kept_bytes <= MOST_UNCONFIRMED_BYTES:
            self._room.set()

    async def _write(self, carrier: MessageCarrier, sent: int) -> None:
        while True:
            self._news.clear()
            for number, data in _joined(list(islice(self._kept, max(0, sent + 1 - self._first_kept()), None))):
                await carrier.send(data)
                sent = number
            if self._owes_confirmation():
                await carrier.send(frames.encode(self._confirmation()))
            if self._is_closed and sent == self._last_sent:
                return
            await self._news.wait()

    def _owes_confirmation(self) -> bool:
        messages = self.received - self._confirmed_to_them
        return messages >= _CONFIRM_MESSAGES or self._unconfirmed_bytes >= _CONFIRM_BYTES

    def _confirmation(self) -> Header:
        self._confirmed_to_them, self._unconfirmed_bytes = self.received, 0
        return {"received": self.received}

    async def _read(self, carrier: MessageCarrier) -> None:
        decoder = frames.Decoder(_MAX_BODY_BYTES, _MAX_HEADER_BYTES)
        with suppress(CarrierLostError):
            while True:
                decoder.feed(await carrier.receive())
                while (message := decoder.next_raw()) is not None:
                    self._take(frames.parse(message[0]), message[1], len(message[0]))

    def _take(self, header: Header, body: bytes, header_bytes: int) -> None:
        number = header.pop("n", None)
        if number is None:
            self._take_confirmation(header)
            return
        if type(number) is not int or number > self.received + 1:
            raise FrameError("a message is missing")
        if number <= self.received:
            return
        self.received = number
        self._unconfirmed_bytes += len(body)
        self._deliver(header, body, header_bytes)
        if self._kept_bytes > _MOST_KEPT_BYTES:
            raise FrameError("the other end asks for more and more, and confirms none of the answers")
        if self._owes_confirmation():
            self._news.set()

    def _take_confirmation(self, header: Header) -> None:
        confirmed = header.get("received")
        if type(confirmed) is not int or confirmed > self._last_sent:
            raise FrameError("a confirmation of what was not sent")
        self._forget(confirmed)


def _joined(waiting: Sequence[_Kept]) -> Iterator[tuple[int, bytes]]:
    """Small messages that wait together are sent together, each with the number of the last of them.

    A call and its end are two; waking the other end for each costs more than they do.
    """
    batch: list[bytes] = []
    size = 0
    for index, kept in enumerate(waiting):
        batch.append(kept.data)
        size += len(kept.data)
        if index + 1 == len(waiting) or size + len(waiting[index + 1].data) > _JOINED_BYTES:
            yield kept.number, b"".join(batch)
            batch, size = [], 0
