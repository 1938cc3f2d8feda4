"""News of a log for open pages, as server-sent events whose ids are record numbers.

One tap for each log, while any page is open: it looks whether the log's file has grown, reads new records once and
hands them to every page. A page says which record it has seen last, and gets what came after: first from the log, then
from the tap. So a page that lost its connection, or whose server was started anew, misses nothing and is told nothing
twice. A reader that is too slow is cut off, and asks again.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from fumehood.audit.records import Record
from fumehood.audit.store import BusyError, Query, patiently
from fumehood.errors import AuditError, FumehoodError
from fumehood.frozen import frozen
from fumehood.server.console.threads import Blocking

if TYPE_CHECKING:
    from fumehood.server.console.source import RecordReader

LOOK_SECONDS = 0.04
_SURE_SECONDS = 1.0
"""Two commits within one tick of the kernel's clock leave the same time behind."""
_BEAT_SECONDS = 15.0
_STREAM_SECONDS = 120.0
"""Then the page asks again, and whether its session is still good is looked at."""
_MOST_WAITING = 512
_MOST_MISSED = 2000
_MOST_CACHED = 512
AGAIN = b"event: again\ndata: {}\n\n"
RELOAD = b"event: reload\ndata: {}\n\n"
_BEAT = b": still here\n\n"


@frozen
class Fragment:
    """A piece of a page. Each of its outermost elements has an id: one that the page has is replaced."""

    html: str
    into: str = ""
    """The id of the element that gets what is new; what is not there is left out without one."""
    at: str = "start"
    """Of that element: `start` or `end`."""
    most: int = 0
    """So many elements are kept there; 0 for all."""


class LiveView(Protocol):
    """What a kind of page shows of a record. Made once for each record and key, whatever pages are open."""

    @property
    def key(self) -> str:
        """Of pages that show the same: it must name everything that changes what they show, roles included."""
        ...

    async def fragments(self, record: Record) -> Sequence[Fragment]: ...


class NewsFeed:
    """The tap on one log. Used in one event loop."""

    def __init__(self, log: Callable[[], RecordReader], blocking: Blocking = asyncio.to_thread) -> None:
        self._log, self._blocking = log, blocking
        self._readers: set[asyncio.Queue[Record | None]] = set()
        self._tap: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()
        self._messages: OrderedDict[tuple[str, int], asyncio.Future[bytes]] = OrderedDict()
        self._is_closed = False

    @property
    def open_pages(self) -> int:
        return len(self._readers)

    def close(self) -> None:
        """Ends every stream: the server is about to end, and pages look for the next one."""
        self._is_closed = True
        for queue in list(self._readers):
            _end(queue)

    async def stream(self, view: LiveView, after: int) -> AsyncGenerator[bytes, None]:
        """Messages about every record after this one, as they are written; ends when the page is to ask again."""
        yield b"retry: 1000\n\n"
        with self._reader() as queue:
            await self._begun.wait()  # what is written from now on is handed out
            try:
                missed = await self._blocking(partial(self._read, after, _MOST_MISSED + 1))
            except (AuditError, OSError):
                return  # as the tap does: the page asks again
            if len(missed) > _MOST_MISSED:
                yield RELOAD
                return
            for record in missed:
                after = record.seq
                if message := await self._message(view, record):
                    yield message
            if missed:
                yield _position(after)
            end = time.monotonic() + _STREAM_SECONDS
            while True:
                if time.monotonic() > end:
                    yield AGAIN
                    return
                try:
                    async with asyncio.timeout(_BEAT_SECONDS):
                        found = await queue.get()
                except TimeoutError:
                    yield _BEAT
                    continue
                if found is None:
                    return
                if found.seq <= after:
                    continue
                after = found.seq
                if message := await self._message(view, found):
                    yield message

    async def _message(self, view: LiveView, record: Record) -> bytes:
        """Made once, however many pages wait for it."""
        place = view.key, record.seq
        if place not in self._messages:
            self._messages[place] = asyncio.ensure_future(_made(view, record))
            while len(self._messages) > _MOST_CACHED:
                self._messages.popitem(last=False)
        try:
            return await asyncio.shield(self._messages[place])
        except FumehoodError:
            self._messages.pop(place, None)  # what could not be shown now may be later
            return b""

    @contextmanager
    def _reader(self) -> Iterator[asyncio.Queue[Record | None]]:
        queue: asyncio.Queue[Record | None] = asyncio.Queue(_MOST_WAITING)
        if self._is_closed:
            _end(queue)
        self._readers.add(queue)
        if self._tap is None or self._tap.done():
            self._begun.clear()
            self._tap = asyncio.ensure_future(self._run())
        try:
            yield queue
        finally:
            self._readers.discard(queue)

    async def _run(self) -> None:
        """Ends with the last reader, and ends every reader when the log cannot be read: pages then ask again."""
        try:
            path, last = await self._blocking(self._start)
            seen, sure = (0, 0), 0.0
            self._begun.set()
            while self._readers:
                await asyncio.sleep(LOOK_SECONDS)
                mark = _mark(path)
                if mark == seen and time.monotonic() < sure + _SURE_SECONDS:
                    continue
                seen, sure = mark, time.monotonic()
                for record in await self._blocking(partial(self._read, last, _MOST_MISSED)):
                    last = record.seq
                    self._hand_out(record)
        except (AuditError, OSError, BusyError):
            for queue in list(self._readers):
                _end(queue)
        finally:
            self._begun.set()

    def _hand_out(self, record: Record) -> None:
        for queue in list(self._readers):
            if queue.full():
                _end(queue)
                self._readers.discard(queue)
            else:
                queue.put_nowait(record)

    def _start(self) -> tuple[str, int]:
        """Where the log is, and its last record: pages read what they have missed so far themselves."""
        log = self._log()
        return os.fspath(log.path), patiently(log.path, log.head).seq

    def _read(self, after: int, most: int) -> list[Record]:
        try:
            return list(self._log().find(Query(after=after, limit=most)))
        except BusyError:
            return []  # the next look finds them


async def _made(view: LiveView, record: Record) -> bytes:
    fragments = await view.fragments(record)
    return _encoded(record.seq, fragments) if fragments else b""


def _end(queue: asyncio.Queue[Record | None]) -> None:
    while queue.full():
        queue.get_nowait()
    queue.put_nowait(None)


def _mark(path: str) -> tuple[int, int]:
    """Changes when a process has written to the log."""
    try:
        details = os.stat(f"{path}-wal")
    except FileNotFoundError:
        return 0, 0
    return details.st_mtime_ns, details.st_size


def _encoded(seq: int, fragments: Sequence[Fragment]) -> bytes:
    pieces = [{"html": each.html, "into": each.into, "at": each.at, "most": each.most} for each in fragments]
    return f"id: {seq}\ndata: {json.dumps(pieces)}\n\n".encode()


def _position(seq: int) -> bytes:
    """Where the page is, although nothing of it changes."""
    return f"id: {seq}\ndata: []\n\n".encode()
