"""Conversations on one link, each with a window: a slow reader of one holds up that one, and costs no memory.

A message has a header and a body of any size up to a limit; it travels in parts. Either end begins conversations; the
other answers in them, and each end says when it has nothing more to say.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from fumehood.guest.contract.frames import FrameError, Header
from fumehood.remote.assembly import ConversationMessage, Limits, MessageAssembly, ReceivedMessage
from fumehood.remote.link import Link, LinkClosedError
from fumehood.remote.memory import MemoryAccount

WINDOW_BYTES = 256 * 1024
_PART_BYTES = 60 * 1024
# A message without a body takes room, too.
_MESSAGE_BYTES = 512


class RemoteConversation:
    """One end of it. One task sends and one receives at a time."""

    def __init__(self, conversations: Conversations, number: int) -> None:
        self._all, self.number = conversations, number
        self._inbox: deque[ReceivedMessage] = deque()
        self._in_use: ReceivedMessage | None = None
        """The message that was received last, which its receiver may still hold."""
        self._news = asyncio.Event()
        self._credit = asyncio.Event()
        self.when_lost: Callable[[], object] | None = None
        """Called once, when the other end has abandoned it, or is gone."""
        self._window = WINDOW_BYTES
        """What this end may still send."""
        self._allowance = WINDOW_BYTES
        """What the other end may still send."""
        self._owed = 0
        self._ended_by_us = self._ended_by_them = self._is_abandoned = False
        self._gone = asyncio.Event()
        self._lost: BaseException | None = None

    async def send(self, header: Header, body: bytes = b"", *, is_last: bool = False) -> None:
        """Waits while the other end reads more slowly than this one sends. With `is_last` there is nothing more to say,
        which costs no message of its own.
        """
        start = 0
        while len(body) - start > _PART_BYTES:
            await self._send_part({"part": True}, body[start : start + _PART_BYTES])
            start += _PART_BYTES
        await self._send_part({"say": header, "end": True} if is_last else {"say": header}, body[start:])
        if is_last:
            self._ended_by_us = True
            self._all.settle(self)

    async def _send_part(self, header: Header, body: bytes) -> None:
        while self._window <= 0:
            self._check()
            self._credit.clear()
            await self._credit.wait()
        self._check()
        self._window -= len(body) + _MESSAGE_BYTES
        await self._all.link.send({"c": self.number, **header}, body)

    async def receive(self) -> ConversationMessage | None:
        """The next message; None when the other end has said that there is none.

        QuotaError for one that there was no room for in the memory of this end.
        """
        while not self._inbox:
            if self._ended_by_them:
                return None
            self._check()
            self._news.clear()
            await self._news.wait()
        self._let_go()
        received = self._in_use = self._inbox.popleft()
        self._owe(received.window_bytes + _MESSAGE_BYTES)
        if received.refusal is not None:
            raise received.refusal
        return received.message

    def _let_go(self) -> None:
        done, self._in_use = self._in_use, None
        if done is not None:
            self._all.assembly.release(done)

    def stop_counting(self) -> None:
        """It is over. What was not received yet can be, and is gone with its receiver."""
        self._let_go()
        for waiting in self._inbox:
            self._all.assembly.release(waiting)
        self._inbox = deque(each.without_cost() for each in self._inbox)

    def end(self) -> None:
        """There is nothing more to say from this end."""
        if not self._ended_by_us and self._lost is None:
            self._ended_by_us = True
            self._post({"end": True})
            self._all.settle(self)

    def abandon(self) -> None:
        """Neither listens nor speaks any more; the other end stops what it does for this conversation."""
        if self._lost is None and not self.is_over:
            self._post({"abandon": True})
            self.lose(LinkClosedError())

    async def wait_until_gone(self) -> None:
        """After `abandon`: until the other end has stopped, or is lost itself."""
        await self._gone.wait()

    def finish(self) -> None:
        """`end`, or the answer to one who has abandoned it: nothing is done for it any more."""
        if self._is_abandoned:
            self._post({"gone": True})
            self._all.drop(self)
        else:
            self.end()

    @property
    def is_abandoned(self) -> bool:
        """By the other end."""
        return self._is_abandoned

    @property
    def is_over(self) -> bool:
        return self._lost is not None or self.has_both_ends

    @property
    def has_both_ends(self) -> bool:
        return self._ended_by_us and self._ended_by_them

    def _post(self, header: Header) -> None:
        try:
            self._all.link.post({"c": self.number, **header})
        except LinkClosedError as error:
            self.lose(error)

    def _owe(self, size: int) -> None:
        self._owed += size
        if self._owed * 2 >= WINDOW_BYTES and not self._ended_by_them:
            self._post({"credit": self._owed})
            self._allowance += self._owed
            self._owed = 0

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost

    # What arrives.

    def charge(self, size: int) -> None:
        """Each part before it is kept. The last one may go beyond the window, as `_send_part` does."""
        if self._ended_by_them:
            raise FrameError("a message after the end of a conversation")
        if self._allowance <= 0:
            raise FrameError("more than the window of a conversation lets in")
        self._allowance -= size + _MESSAGE_BYTES

    def add(self, received: ReceivedMessage) -> None:
        self._inbox.append(received)
        self._news.set()

    def add_credit(self, size: int) -> None:
        self._window = min(WINDOW_BYTES, self._window + size)
        self._credit.set()

    def end_by_them(self) -> None:
        self._ended_by_them = True
        self._gone.set()
        self._news.set()
        self._all.settle(self)

    def abandon_by_them(self) -> None:
        self._is_abandoned = True
        self.lose(LinkClosedError("the other end has abandoned it"))

    def be_gone(self, error: BaseException) -> None:
        """Nothing will come of it any more, not even the word that it is over."""
        self._gone.set()
        self.lose(error)

    def lose(self, error: BaseException) -> None:
        if self._lost is None:
            self._lost = error
            self._news.set()
            self._credit.set()
            if self.when_lost is not None:
                self.when_lost()

    def give_back(self, size: int) -> None:
        """A part lies beside its message now, and takes no room in the window."""
        self._owe(size + _MESSAGE_BYTES)


class Conversations:
    """All of one link. `begun` is called for each that the other end begins, when its first message is there.

    Those of the client have odd numbers, those of the server even ones. `account` bounds what several links hold
    together.
    """

    def __init__(
        self,
        begun: Callable[[RemoteConversation], None],
        *,
        is_client: bool,
        limits: Limits | None = None,
        account: MemoryAccount | None = None,
    ) -> None:
        self.link = Link(self._take)
        self._begun, self._limits = begun, limits or Limits()
        self._next, self._parity = (1, 1) if is_client else (2, 0)
        self._last_of_theirs = 0
        self._open: dict[int, RemoteConversation] = {}
        self._greeted: set[int] = set()
        """Those of the other end whose first message has come."""
        self.assembly = MessageAssembly(self._limits, account)

    async def begin(self, header: Header, body: bytes = b"", *, is_last: bool = False) -> RemoteConversation:
        """A new conversation, with its first message."""
        conversation = self._open[self._next] = RemoteConversation(self, self._next)
        self._next += 2
        try:
            await conversation.send(header, body, is_last=is_last)
        except BaseException:
            conversation.abandon()
            raise
        return conversation

    def settle(self, conversation: RemoteConversation) -> None:
        if conversation.is_over:
            self.drop(conversation)

    def drop(self, conversation: RemoteConversation) -> None:
        self._open.pop(conversation.number, None)
        self._greeted.discard(conversation.number)
        conversation.stop_counting()
        self.assembly.drop(conversation.number)

    def lose(self, error: BaseException) -> None:
        """The other end is gone for good."""
        self.link.close()
        for conversation in list(self._open.values()):
            conversation.be_gone(error)
        self._open.clear()
        self.assembly.clear()

    def _take(self, header: Header, body: bytes, header_bytes: int) -> None:
        number = header.get("c")
        if type(number) is not int or number < 1:
            raise FrameError("a message that belongs to no conversation")
        conversation = self._open.get(number)
        if conversation is None:
            conversation = self._admit(number)
            if conversation is None:
                return
        if conversation.is_abandoned:
            return
        if "part" in header:
            conversation.charge(len(body))
            self.assembly.add_part(conversation, body)
        elif "say" in header:
            self._complete(conversation, header["say"], body, header_bytes)
            if "end" in header:
                conversation.end_by_them()
        elif "credit" in header:
            conversation.add_credit(_checked_size(header["credit"]))
        elif "abandon" in header:
            self._abandon(conversation)
        elif "gone" in header:
            self.drop(conversation)
            conversation.be_gone(LinkClosedError())
        else:
            conversation.end_by_them()

    def _abandon(self, conversation: RemoteConversation) -> None:
        """One that was begun counts as long as something is done for it."""
        is_begun = conversation.number in self._greeted
        if not is_begun:
            self.drop(conversation)
        conversation.abandon_by_them()
        if not is_begun:
            conversation.finish()

    def _admit(self, number: int) -> RemoteConversation | None:
        """A new one of theirs; None for what still arrives of one that is over."""
        if number % 2 == self._parity or number <= self._last_of_theirs:
            return None
        if len(self._open) >= self._limits.conversations:
            raise FrameError(f"more than {self._limits.conversations} conversations at once")
        self._last_of_theirs = number
        conversation = self._open[number] = RemoteConversation(self, number)
        return conversation

    def _complete(self, conversation: RemoteConversation, header: object, body: bytes, header_bytes: int) -> None:
        if not isinstance(header, dict):
            raise FrameError("a message without a header")
        conversation.charge(len(body))
        number = conversation.number
        conversation.add(self.assembly.complete(number, header, body, header_bytes))  # pyright: ignore[reportUnknownArgumentType] - keys are text
        if number % 2 != self._parity and number not in self._greeted:
            self._greeted.add(number)
            self._begun(conversation)


def _checked_size(size: object) -> int:
    if type(size) is not int or size < 0:
        raise FrameError("a credit that is no number")
    return size
