"""Output of a run as it appears, for a client of HTTP: lines of JSON, or server-sent events.

One task reads the run and fills a small queue; a slow client slows the run, and one that leaves ends it.
"""

from __future__ import annotations

import asyncio
import codecs
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from fumehood.events import Event, Finished, Stderr, Stdout
from fumehood.results import Display
from fumehood.server.api.problems import answer_problem

LINES, EVENTS = "application/x-ndjson", "text/event-stream"
_WAITING = 8
_FIRST_SECONDS = 0.5
# Proxies that collect an answer before they pass it on are asked not to.
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_Item = Event | Exception | None


def stream_kind(request: Request) -> str | None:
    """The kind of stream that a request accepts, if it wants one."""
    accepted = request.headers.get("accept", "")
    return next((kind for kind in (LINES, EVENTS) if kind in accepted), None)


async def stream_answer(request: Request, kind: str, events: AsyncGenerator[Event, None]) -> Response:
    """A run that is refused at once is an answer like any other; one that fails later ends with a line that says so."""
    queue: asyncio.Queue[_Item] = asyncio.Queue(_WAITING)
    reader = asyncio.ensure_future(_read(events, queue))
    try:
        first = await _first(queue)
    except BaseException:
        await end_task(reader)
        raise
    if isinstance(first, Exception):
        await end_task(reader)
        raise first
    return StreamingResponse(_lines(request, kind, queue, reader, first), media_type=kind, headers=_HEADERS)


async def _read(events: AsyncGenerator[Event, None], queue: asyncio.Queue[_Item]) -> None:
    try:
        async with aclosing(events):
            async for event in events:
                await queue.put(event)
        await queue.put(None)
    except Exception as error:
        await queue.put(error)


class _Nothing:
    """Nothing has happened so far, and the client is to know that it goes on."""


async def _first(queue: asyncio.Queue[_Item]) -> _Item | _Nothing:
    try:
        async with asyncio.timeout(_FIRST_SECONDS):
            return await queue.get()
    except TimeoutError:
        return _Nothing()


async def _lines(
    request: Request, kind: str, queue: asyncio.Queue[_Item], reader: asyncio.Task[None], first: _Item | _Nothing
) -> AsyncIterator[bytes]:
    decoders = {1: _decoder(), 2: _decoder()}
    try:
        item = await queue.get() if isinstance(first, _Nothing) else first
        while item is not None:
            if isinstance(item, Exception):
                yield _line(kind, "failed", json.loads(bytes((await answer_problem(request, item)).body)))
                return
            yield _line(kind, *_content(item, decoders))
            item = await queue.get()
    finally:
        await end_task(reader)


def _content(event: Event, decoders: dict[int, codecs.IncrementalDecoder]) -> tuple[str, object]:
    match event:
        case Stdout(data):
            return "stdout", {"text": decoders[1].decode(data)}
        case Stderr(data):
            return "stderr", {"text": decoders[2].decode(data)}
        case Display():
            return "display", event.to_dict()
        case Finished(result):
            return "finished", {"result": result.to_dict()}


def _line(kind: str, name: str, content: object) -> bytes:
    text = json.dumps(content)
    if kind == EVENTS:
        return f"event: {name}\ndata: {text}\n\n".encode()
    return f'{{"type": "{name}", "data": {text}}}\n'.encode()


def _decoder() -> codecs.IncrementalDecoder:
    """A character may come in two pieces."""
    return codecs.getincrementaldecoder("utf-8")("replace")


async def end_task(task: asyncio.Future[Any]) -> None:
    """Cancels it once and waits for its end: a second time would interrupt it while it closes what it has."""
    task.cancel()
    with anyio.CancelScope(shield=True):
        await asyncio.wait([task])
