"""Conversations on one link, each with a window: a slow reader of one holds up that one, and costs no memory.

A message has a header and a body of any size up to a limit; it travels in parts. Either end begins conversations; the
other answers in them, and each end says when it has nothing more to say.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from fumehood.errors import QuotaError
from fumehood.guest.contract.frames import FrameError, Header
from fumehood.remote.link import Link, LinkClosedError
from fumehood.remote.memory import LinkMemory, MemoryAccount

WINDOW_BYTES = 256 * 1024
_PART_BYTES = 60 * 1024
# A message without a body takes room, too.
_MESSAGE_BYTES = 512


class ConversationMessage(NamedTuple):
    header: Header
    body: bytes = b""


class Limits(NamedTuple):
    """What one end lets the other take of its memory."""

    conversations: int = 256
    message_bytes: int = 64 * 1024 * 1024
    assembled_bytes: int = 96 * 1024 * 1024
    """All messages together that came in parts, until they are done with; for more the other end has to wait."""
    header_bytes: int = 4 * 1024 * 1024
    """All headers together, likewise. What is parsed takes many times its text."""


class _Received(NamedTuple):
    """A message that waits to be received."""

    message: ConversationMessage
    body_bytes: int
    """Of the window, which it takes until it is received."""
    part_bytes: int
    header_bytes: int
    memory_bytes: int
    refusal: QuotaError | None = None
    """In place of a message that there was no room for."""


class RemoteConversation:
    """One end of it. One task sends and one receives at a time."""

    def __init__(self, conversations: Conversations, number: int) -> None:
        self._all, self.number = conversations, number
        self._inbox: deque[_Received] = deque()
        self._in_use: _Received | None = None
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
        self._owe(received.body_bytes + _MESSAGE_BYTES)
        if received.refusal is not None:
            raise received.refusal
        return received.message

    def _let_go(self) -> None:
        done, self._in_use = self._in_use, None
        if done is not None:
            self._all.release(done.part_bytes, done.header_bytes, done.memory_bytes)

    def stop_counting(self) -> None:
        """It is over. What was not received yet can be, and is gone with its receiver."""
        self._let_go()
        for waiting in self._inbox:
            self._all.release(waiting.part_bytes, waiting.header_bytes, waiting.memory_bytes)
        self._inbox = deque(each._replace(part_bytes=0, header_bytes=0, memory_bytes=0) for each in self._inbox)

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

    def add(self, received: _Received) -> None:
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
        self._parts: dict[int, bytearray] = {}
        self._unfinished = 0
        """Bytes of messages whose last part has not come yet."""
        self._held, self._held_headers = 0, 0
        self._memory = LinkMemory(account)
        self._refused: dict[int, QuotaError] = {}
        """Why there is no room for a message whose last part has not come yet; its parts are not kept."""
        self._owed: deque[tuple[RemoteConversation, int]] = deque()
        """Parts whose room in the window is given back when less is held."""

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
        unfinished = len(self._parts.pop(conversation.number, b""))
        self._unfinished -= unfinished
        self._refused.pop(conversation.number, None)
        conversation.stop_counting()
        self.release(unfinished, 0, unfinished)

    def release(self, part_bytes: int, header_bytes: int, memory_bytes: int) -> None:
        """So much is not held any more; others may go on."""
        self._memory.give(memory_bytes)
        self._held -= part_bytes
        self._held_headers -= header_bytes
        while self._owed and self._held <= self._limits.assembled_bytes:
            conversation, size = self._owed.popleft()
            conversation.give_back(size)

    def lose(self, error: BaseException) -> None:
        """The other end is gone for good."""
        self.link.close()
        for conversation in list(self._open.values()):
            conversation.be_gone(error)
        self._open.clear()
        self._parts.clear()
        self._owed.clear()
        self._refused.clear()
        self._memory.give_all()
        self._unfinished = self._held = self._held_headers = 0

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
            self._keep_part(conversation, body)
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

    def _keep_part(self, conversation: RemoteConversation, body: bytes) -> None:
        conversation.charge(len(body))
        if conversation.number in self._refused or not self._has_room(conversation, len(body)):
            conversation.give_back(len(body))
            return
        parts = self._parts.setdefault(conversation.number, bytearray())
        self._unfinished += len(body)
        if len(parts) + len(body) > self._limits.message_bytes or self._unfinished > self._limits.assembled_bytes:
            raise FrameError("a message that is larger than the protocol allows")
        parts += body
        self._held += len(body)
        if self._held <= self._limits.assembled_bytes:
            conversation.give_back(len(body))
        else:
            self._owed.append((conversation, len(body)))

    def _has_room(self, conversation: RemoteConversation, size: int) -> bool:
        """Without room, what there is of the message is dropped: its sender may go on, and is told at its end."""
        refusal = self._memory.take(size)
        if refusal is None:
            return True
        unfinished = len(self._parts.pop(conversation.number, b""))
        self._unfinished -= unfinished
        self.release(unfinished, 0, unfinished)
        self._refused[conversation.number] = refusal
        return False

    def _complete(self, conversation: RemoteConversation, header: object, body: bytes, header_bytes: int) -> None:
        if not isinstance(header, dict):
            raise FrameError("a message without a header")
        conversation.charge(window_bytes := len(body))
        self._held_headers += header_bytes
        if self._held_headers > self._limits.header_bytes:
            raise FrameError("headers that are larger together than the protocol allows")
        if conversation.number not in self._refused:
            self._has_room(conversation, len(body))
        refusal = self._refused.pop(conversation.number, None)
        if refusal is not None:
            header, body = {}, b""
        parts = self._parts.pop(conversation.number, bytearray())
        self._unfinished -= len(parts)
        size = len(parts) + len(body)
        is_new = conversation.number % 2 != self._parity and conversation.number not in self._greeted
        message = ConversationMessage(header, bytes(parts) + body)  # pyright: ignore[reportUnknownArgumentType] - keys are text
        conversation.add(_Received(message, window_bytes, len(parts), header_bytes, size, refusal))
        if is_new:
            self._greeted.add(conversation.number)
            self._begun(conversation)


def _checked_size(size: object) -> int:
    if type(size) is not int or size < 0:
        raise FrameError("a credit that is no number")
    return size
