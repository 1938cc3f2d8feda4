"""How many handlers are at work at the same time in a runtime, and whose turn is next.

A handler that waits for another agent's answer gives its slot up meanwhile: otherwise all slots could be held by
handlers that wait for each other's turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


class Slots(Generic[T]):
    """`launch` begins a piece of work that has got a slot."""

    def __init__(self, count: int, launch: Callable[[T], None]) -> None:
        self._free = count
        self._launch = launch
        self._waiting: deque[T] = deque()
        self._returning: deque[anyio.Event] = deque()
        self._is_held = False

    def ask(self, work: T) -> None:
        """It is launched now, or when it is its turn."""
        if self._free > 0 and not self._is_held:
            self._free -= 1
            self._launch(work)
        else:
            self._waiting.append(work)

    def swap(self, more: T | None) -> T | None:
        """For who has done something and holds a slot: what to do next with it, or None if the slot is gone.

        `more` goes to the end of the line, if there is one.
        """
        if self._returning or self._waiting or self._is_held:
            if more is not None:
                self._waiting.append(more)
            if self._returning or self._is_held:
                self.release()
                return None
            return self._waiting.popleft()
        if more is None:
            self._free += 1
        return more

    def release(self) -> None:
        if self._returning:
            self._returning.popleft().set()
        elif self._waiting and not self._is_held:
            self._launch(self._waiting.popleft())
        else:
            self._free += 1

    async def take_back(self) -> None:
        """For who released one in the middle of its work. When this is cancelled the slot is taken all the same."""
        if self._free > 0:
            self._free -= 1
            return
        turn = anyio.Event()
        self._returning.append(turn)
        try:
            await turn.wait()
        except BaseException:
            if not turn.is_set():
                self._returning.remove(turn)
                self._free -= 1
            raise

    def hold(self) -> None:
        """Nothing new begins until `go_on`."""
        self._is_held = True

    def go_on(self) -> None:
        self._is_held = False
        while self._free > 0 and self._waiting:
            self._free -= 1
            self._launch(self._waiting.popleft())
