"""Messages that arrive in parts, put together within limits: of one message, of one link, of all links of a tenant."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

from fumehood.errors import QuotaError
from fumehood.guest.contract.frames import FrameError, Header
from fumehood.remote.memory import LinkMemory, MemoryAccount


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


class ReceivedMessage(NamedTuple):
    """A message that waits to be received, and what it holds until its receiver is done with it."""

    message: ConversationMessage
    window_bytes: int
    """Of the window, which it takes until it is received."""
    part_bytes: int
    header_bytes: int
    memory_bytes: int
    refusal: QuotaError | None = None
    """In place of a message that there was no room for."""

    def without_cost(self) -> ReceivedMessage:
        return self._replace(part_bytes=0, header_bytes=0, memory_bytes=0)


class PartSender(Protocol):
    """The conversation that parts come from."""

    number: int

    def give_back(self, size: int) -> None:
        """A part of so many bytes takes no room in the window any more."""
        ...


class MessageAssembly:
    """Of one link. `account` bounds what several links hold together."""

    def __init__(self, limits: Limits, account: MemoryAccount | None) -> None:
        self._limits, self._memory = limits, LinkMemory(account)
        self._parts: dict[int, bytearray] = {}
        """By the number of their conversation."""
        self._unfinished = 0
        """Bytes of messages whose last part has not come yet."""
        self._held, self._held_headers = 0, 0
        self._refused: dict[int, QuotaError] = {}
        """Why there is no room for a message whose last part has not come yet; its parts are not kept."""
        self._owed: deque[tuple[PartSender, int]] = deque()
        """Parts whose room in the window is given back when less is held."""

    def add_part(self, sender: PartSender, body: bytes) -> None:
        if sender.number in self._refused or not self._has_room(sender.number, len(body)):
            sender.give_back(len(body))
            return
        parts = self._parts.setdefault(sender.number, bytearray())
        self._unfinished += len(body)
        if len(parts) + len(body) > self._limits.message_bytes or self._unfinished > self._limits.assembled_bytes:
            raise FrameError("a message that is larger than the protocol allows")
        parts += body
        self._held += len(body)
        if self._held <= self._limits.assembled_bytes:
            sender.give_back(len(body))
        else:
            self._owed.append((sender, len(body)))

    def complete(self, number: int, header: Header, body: bytes, header_bytes: int) -> ReceivedMessage:
        """With the last part, which comes with the header."""
        window_bytes = len(body)
        self._held_headers += header_bytes
        if self._held_headers > self._limits.header_bytes:
            raise FrameError("headers that are larger together than the protocol allows")
        if number not in self._refused:
            self._has_room(number, len(body))
        refusal = self._refused.pop(number, None)
        if refusal is not None:
            header, body = {}, b""
        parts = self._parts.pop(number, bytearray())
        self._unfinished -= len(parts)
        message = ConversationMessage(header, bytes(parts) + body)
        return ReceivedMessage(message, window_bytes, len(parts), header_bytes, len(parts) + len(body), refusal)

    def _has_room(self, number: int, size: int) -> bool:
        """Without room, what there is of the message is dropped: its sender may go on, and is told at its end."""
        refusal = self._memory.take(size)
        if refusal is None:
            return True
        self._drop_parts(number)
        self._refused[number] = refusal
        return False

    def drop(self, number: int) -> None:
        """What is there of a message of this conversation, which is over."""
        self._refused.pop(number, None)
        self._drop_parts(number)

    def _drop_parts(self, number: int) -> None:
        unfinished = len(self._parts.pop(number, b""))
        self._unfinished -= unfinished
        self._release(unfinished, 0, unfinished)

    def release(self, received: ReceivedMessage) -> None:
        """Its receiver is done with it; others may go on."""
        self._release(received.part_bytes, received.header_bytes, received.memory_bytes)

    def _release(self, part_bytes: int, header_bytes: int, memory_bytes: int) -> None:
        self._memory.give(memory_bytes)
        self._held -= part_bytes
        self._held_headers -= header_bytes
        while self._owed and self._held <= self._limits.assembled_bytes:
            sender, size = self._owed.popleft()
            sender.give_back(size)

    def clear(self) -> None:
        self._parts.clear()
        self._owed.clear()
        self._refused.clear()
        self._memory.give_all()
        self._unfinished = self._held = self._held_headers = 0
