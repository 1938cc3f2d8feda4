"""What an agent remembers: all that was said, and what its model reads of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from fumehood.agents.compaction import Compaction, CompactionInput, tokens_of
from fumehood.agents.messages import USER, ChatMessage, UserMessage


class Shortened(NamedTuple):
    """Messages and tokens, by our count, before and after."""

    messages_before: int
    messages_after: int
    tokens_before: int
    tokens_after: int


class Memory:
    def __init__(self, compaction: Compaction) -> None:
        self._compaction = compaction
        self.all: list[ChatMessage] = []
        self.shown: list[ChatMessage] = []
        """What the model reads."""
        self._turn: list[ChatMessage] = []
        """What the turn under way began with."""
        self._is_beginning = False
        self.has_lost_files = False
        """Whether the sandbox is another one than that of earlier calls, and the model does not know yet."""

    def load(self, messages: Sequence[ChatMessage]) -> None:
        self.all, self.shown, self._turn = list(messages), list(messages), []

    def begin_task(self) -> None:
        self._turn, self._is_beginning = [], True

    def add(self, message: ChatMessage) -> None:
        self.all.append(message)
        self.shown.append(message)
        self._is_beginning = self._is_beginning and isinstance(message, UserMessage)
        if self._is_beginning:
            self._turn.append(message)

    async def compact(self, ask: Callable[[str], Awaitable[str]], *, is_overflow: bool = False) -> Shortened | None:
        """Shortens the conversation if it is too long; after an overflow, to half. None if nothing changed."""
        before = tokens_of(self.shown)
        wanted = before // 2 if is_overflow else self._compaction.tokens
        if before <= wanted:
            return None
        conversation = CompactionInput(tuple(self.shown), self._task(), wanted, ask)
        shown = list(await self._compaction.compact(conversation))
        if shown == self.shown:
            return None
        told = Shortened(len(self.shown), len(shown), before, tokens_of(shown))
        self.shown = shown
        return told

    def _task(self) -> frozenset[int]:
        """What the user said last, and what the turn is about."""
        said = [index for index, each in enumerate(self.shown) if isinstance(each, UserMessage) and each.source == USER]
        own = [index for index, each in enumerate(self.shown) if any(each is other for other in self._turn)]
        return frozenset((*said[-1:], *own))
