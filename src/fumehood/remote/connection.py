"""A client's connection to its sandbox: made, and made again when it breaks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from fumehood.guest.contract import frames
from fumehood.guest.contract.frames import FrameError, Header
from fumehood.remote.calls import LostError, ask
from fumehood.remote.carrier import Carrier, CarrierLostError
from fumehood.remote.conversations import Conversation, Conversations
from fumehood.remote.failures import unpack_failure

PROTOCOL = 1
_FIRST_PAUSE_SECONDS = 0.05
_MOST_PAUSE_SECONDS = 2.0
_MAX_HEADER_BYTES = 1024 * 1024

Dial = Callable[[], Awaitable[Carrier]]


class Connection:
    """`async with Connection(dial, wishes) as connection`: opens the sandbox that the wishes describe."""

    def __init__(self, dial: Dial, wishes: Header) -> None:
        self._dial, self._wishes = dial, wishes
        self.conversations = Conversations(_refuse, is_client=True)
        self.opened: Header = {}
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            carrier = await self._dial()
            answer = await _greet(carrier, {"do": "open", "protocol": PROTOCOL, **self._wishes})
        except CarrierLostError as error:
            raise LostError(str(error)) from error
        self.opened = answer["opened"]
        self._task = asyncio.ensure_future(self._keep(carrier))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """The sandbox is closed when this returns, unless the way to it is lost."""
        assert self._task is not None
        try:
            if not self._task.done():
                await asyncio.shield(ask(self.conversations, {"do": "close"}))
        except LostError:
            pass
        finally:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep(self, carrier: Carrier) -> None:
        received = 0
        try:
            while True:
                await self.conversations.link.use(carrier, received)
                carrier, received = await self._again()
        except (LostError, FrameError) as error:
            self.conversations.lose(error)

    async def _again(self) -> tuple[Carrier, int]:
        """LostError when the server does not have the sandbox any more, or does not come back in time."""
        pause, end = _FIRST_PAUSE_SECONDS, asyncio.get_running_loop().time() + self.opened["linger"]
        while True:
            try:
                carrier = await self._dial()
                answer = await _greet(carrier, self._attachment())
                return carrier, answer["received"]
            except CarrierLostError as error:
                if asyncio.get_running_loop().time() > end:
                    raise LostError(f"the server did not come back in {self.opened['linger']} s: {error}") from error
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, _MOST_PAUSE_SECONDS)

    def _attachment(self) -> Header:
        return {
            "do": "attach",
            "protocol": PROTOCOL,
            "sandbox": self.opened["sandbox"],
            "token": self.opened["token"],
            "received": self.conversations.link.received,
        }


async def _greet(carrier: Carrier, header: Header) -> Header:
    await carrier.send(frames.encode(header))
    decoder = frames.Decoder(0, _MAX_HEADER_BYTES)
    decoder.feed(await carrier.receive())
    message = decoder.next()
    if message is None:
        raise FrameError("the server's first message is not whole")
    answer = message[0]
    if "failed" in answer:
        await carrier.close()
        raise unpack_failure(answer["failed"])
    return answer


def _refuse(conversation: Conversation) -> None:
    """A server begins no conversation with a client."""
    conversation.abandon()
