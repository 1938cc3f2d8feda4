"""The first message on a carrier: what the end that has dialled wants."""

from __future__ import annotations

from fumehood.guest.contract import frames
from fumehood.guest.contract.frames import FrameError, Header
from fumehood.remote.carrier import MessageCarrier

_MAX_BYTES = 1024 * 1024


async def receive_greeting(carrier: MessageCarrier) -> Header:
    decoder = frames.Decoder(0, _MAX_BYTES)
    decoder.feed(await carrier.receive())
    message = decoder.next()
    if message is None:
        raise FrameError("a first message that is not whole")
    return message[0]
