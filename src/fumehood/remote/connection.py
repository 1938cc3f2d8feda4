"""A client's connection to its sandbox: made, and made again when it breaks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, cast

from fumehood.errors import LostError
from fumehood.frozen import frozen
from fumehood.guest.contract import frames
from fumehood.guest.contract.frames import FrameError, Header
from fumehood.policy import Policy
from fumehood.remote.calls import ask
from fumehood.remote.carrier import CarrierLostError, MessageCarrier
from fumehood.remote.conversations import Conversations, RemoteConversation
from fumehood.remote.failures import unpack_failure
from fumehood.remote.link import LinkClosedError
from fumehood.remote.memory import MemoryAccount
from fumehood.remote.policies import unpack_policy

PROTOCOL = 2
_FIRST_PAUSE_SECONDS = 0.05
_MOST_PAUSE_SECONDS = 2.0
_MAX_HEADER_BYTES = 1024 * 1024

Dial = Callable[[], Awaitable[MessageCarrier]]


@frozen
class Opened:
    """What the server says of a sandbox that it has opened."""

    sandbox: str
    token: str
    """For this client, when it comes back to the sandbox."""
    linger: float
    """Seconds that the server keeps it without a connection."""
    policy: Policy
    enforcement: Mapping[str, str]


class SandboxConnection:
    """`place` is the server's URL, and `requested` describes the sandbox.

    `progress` gets a line for each step of a long opening. `prepare` is called before it, and adds to that. `account`
    bounds what messages of several connections hold together.
    """

    def __init__(
        self,
        place: str,
        dial: Dial,
        requested: Header,
        progress: Callable[[str], None] | None = None,
        prepare: Callable[[], Awaitable[Header]] | None = None,
        account: MemoryAccount | None = None,
    ) -> None:
        self.place, self._dial, self._requested, self._progress = place, dial, requested, progress
        self._prepare, self._account = prepare, account
        self._conversations: Conversations | None = None
        self._opened: Opened | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def opened(self) -> Opened:
        assert self._opened is not None
        return self._opened

    @property
    def conversations(self) -> Conversations:
        """Of the sandbox that was opened last; made when they are used."""
        if self._conversations is None:
            self._conversations = Conversations(_refuse, is_client=True, account=self._account)
        return self._conversations

    def beside(self, requested: Header) -> SandboxConnection:
        """One to another sandbox of the same server."""
        return SandboxConnection(self.place, self._dial, requested, self._progress)

    async def open(self) -> None:
        carrier: MessageCarrier | None = None
        try:
            more = {} if self._prepare is None else await self._prepare()
            carrier = await self._dial()
            answer = await self._greet(carrier, {"do": "open", "protocol": PROTOCOL, **self._requested, **more})
            self._opened = _unpack_opened(answer)
        except (CarrierLostError, FrameError) as error:
            if carrier is not None:
                await asyncio.shield(carrier.close())
            raise LostError(str(error)) from error
        except BaseException:
            if carrier is not None:
                await asyncio.shield(carrier.close())
            raise
        self._conversations = None
        self._task = asyncio.ensure_future(self._keep(carrier))

    async def close(self, *, is_failing: bool = False) -> None:
        """The sandbox is closed when this returns. If the way to it is lost, the server closes it by itself."""
        task, self._task = self._task, None
        if task is None:
            return
        try:
            with suppress(LostError):
                await ask(self.conversations, {"do": "close", "failing": is_failing})
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _keep(self, carrier: MessageCarrier) -> None:
        """Until it is cancelled, or the sandbox is gone."""
        received = 0
        try:
            while True:
                try:
                    await self.conversations.link.use(carrier, received)
                finally:
                    await carrier.close()
                carrier, received = await self._again()
        except Exception as error:
            # Whatever it is, callers must not wait for what will not come.
            self.conversations.lose(LinkClosedError(str(error)))
        except asyncio.CancelledError:
            self.conversations.lose(LinkClosedError("the sandbox is closed"))
            raise

    async def _again(self) -> tuple[MessageCarrier, int]:
        """LostError when the server does not have the sandbox any more, or does not come back in time."""
        clock = asyncio.get_running_loop().time
        pause, end = _FIRST_PAUSE_SECONDS, clock() + self.opened.linger
        while True:
            try:
                return await self._attach()
            except CarrierLostError as error:
                if clock() > end:
                    raise LostError(f"the server did not come back in {self.opened.linger:g} s: {error}") from error
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, _MOST_PAUSE_SECONDS)

    async def _attach(self) -> tuple[MessageCarrier, int]:
        carrier = await self._dial()
        try:
            answer = await self._greet(carrier, self._attachment())
            return carrier, int(answer["received"])
        except BaseException:
            await asyncio.shield(carrier.close())
            raise

    def _attachment(self) -> Header:
        return {
            "do": "attach",
            "protocol": PROTOCOL,
            "sandbox": self.opened.sandbox,
            "token": self.opened.token,
            "received": self.conversations.link.received,
        }

    async def _greet(self, carrier: MessageCarrier, header: Header) -> Header:
        await carrier.send(frames.encode(header))
        while True:
            decoder = frames.Decoder(0, _MAX_HEADER_BYTES)
            decoder.feed(await carrier.receive())
            message = decoder.next()
            if message is None:
                raise FrameError("a message of the server's is not whole")
            answer = message[0]
            if "failed" in answer:
                raise unpack_failure(answer["failed"])
            if "progress" not in answer:
                return answer
            if self._progress is not None:
                self._progress(str(answer["progress"]))


def _unpack_opened(answer: Header) -> Opened:
    try:
        given = cast("dict[str, Any]", answer["opened"])
        policy = unpack_policy(given["policy"])
        return Opened(
            str(given["sandbox"]), str(given["token"]), float(given["linger"]), policy, dict(given["enforcement"])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FrameError(f"the server's answer is not complete: {error}") from error


def _refuse(conversation: RemoteConversation) -> None:
    """A server begins no conversation with a client."""
    conversation.abandon()
