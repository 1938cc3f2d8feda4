"""Output of a call while it goes on, told to the client as progress."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from fumehood.events import Stderr, Stdout
from fumehood.policy import format_size
from fumehood.tools.filters import Pipeline
from fumehood.tools.watching import watching

_PAUSE_SECONDS = 0.1
_MOST_LINES = 20
_LONGEST_LINE = 4096
_MOST_CHARACTERS = 400

Tell = Callable[[float, str], Awaitable[None]]
"""How far it is, which only grows, and a line about it."""


class Live:
    """Takes output as fast as it comes, and keeps the last lines for a client that is slower.

    A secret can stretch over lines that come one by one, and half of one is not recognised. So where the policy has
    any, the client is told how much there is and not what.
    """

    def __init__(self, filters: Pipeline, *, shows_text: bool) -> None:
        self._filters, self._shows_text = filters, shows_text
        self._decoders = {kind: codecs.getincrementaldecoder("utf-8")("replace") for kind in (Stdout, Stderr)}
        self._begun = {Stdout: "", Stderr: ""}
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._bytes = 0
        self._news = anyio.Event()

    def see(self, event: Stdout | Stderr) -> None:
        kind = type(event)
        self._bytes += len(event.data)
        *lines, rest = (self._begun[kind] + self._decoders[kind].decode(event.data)).split("\n")
        # One character too many is enough to know that a line is too long.
        self._begun[kind] = rest[: _LONGEST_LINE + 1]
        self._lines.extend(_whole(line) for line in lines[-_MOST_LINES:] if line.strip())
        if self._lines or not self._shows_text:
            self._news.set()

    async def tell(self, tell: Tell) -> None:
        """Until it is cancelled."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            await tell(self._bytes, self._take())
            await anyio.sleep(_PAUSE_SECONDS)

    def _take(self) -> str:
        if not self._shows_text:
            return f"{format_size(self._bytes)} of output"
        lines = "\n".join(self._lines)
        self._lines.clear()
        return "\n".join(line[:_MOST_CHARACTERS] for line in self._filters.sift(lines).text.split("\n"))


def _whole(line: str) -> str:
    """A line is cut after it was cleaned, and one that is too long for that is not shown."""
    return line if len(line) <= _LONGEST_LINE else "[a long line]"


@asynccontextmanager
async def telling(filters: Pipeline, tell: Tell, *, shows_text: bool) -> AsyncIterator[None]:
    """Inside of the block the client is told what the runs of tools write."""
    live = Live(filters, shows_text=shows_text)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(live.tell, tell)
        with watching(live.see):
            yield
        tasks.cancel_scope.cancel()
