"""Watches in `filesystem.Filesystem`: WatchDir is a stream, the three others are for clients that ask again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from fumehood.errors import FumehoodError
from fumehood.sandbox.files.entries import FileChange
from fumehood.sandbox.files.watch import AsyncWatch
from fumehood.server.e2b.bodies import read_json
from fumehood.server.e2b.envelopes import end_of_stream, envelope, read_envelope
from fumehood.server.e2b.errors import failure_of
from fumehood.server.e2b.fields import field
from fumehood.server.e2b.filesystem import describe
from fumehood.server.e2b.paths import inner_path
from fumehood.server.e2b.process_service import keepalive_of, streaming
from fumehood.server.e2b.sandboxes import E2bSandbox
from fumehood.server.e2b.watchers import events_of


def _wish(message: Mapping[str, Any]) -> tuple[str, bool]:
    return field(message, "path", str, ""), field(message, "recursive", bool, False)


async def watch_dir(sandbox: E2bSandbox, request: Request) -> Response:
    message = await read_envelope(request)
    path, recursive = _wish(message)
    watch, folder = await sandbox.watchers.begin(path, recursive=recursive)
    has_entries = field(message, "includeEntry", bool, False)
    return streaming(_changes(sandbox, watch, folder, keepalive_of(request), has_entries=has_entries))


async def _changes(
    sandbox: E2bSandbox, watch: AsyncWatch, folder: str, keepalive_seconds: float, *, has_entries: bool
) -> AsyncGenerator[bytes, None]:
    following: asyncio.Task[FileChange | None] | None = None
    with sandbox.in_use():
        try:
            yield envelope({"start": {}})
            while True:
                following = following or asyncio.ensure_future(watch.next())
                done, _ = await asyncio.wait([following], timeout=keepalive_seconds)
                if not done:
                    yield envelope({"keepalive": {}})
                    continue
                change, following = following.result(), None
                if change is None:
                    yield end_of_stream()
                    return
                for event in await events_of(sandbox.box, change, folder):
                    entry = await _entry(sandbox, folder, event) if has_entries else {}
                    yield envelope({"filesystem": event | entry})
        except FumehoodError as error:
            yield end_of_stream(failure_of(error))
        finally:
            if following is not None:
                following.cancel()
            await watch.close()


async def _entry(sandbox: E2bSandbox, folder: str, event: Mapping[str, Any]) -> dict[str, Any]:
    """Of what is still there."""
    try:
        return {"entry": await describe(sandbox, inner_path(f"{folder}/{event['name']}"))}
    except FumehoodError:
        return {}


async def create_watcher(sandbox: E2bSandbox, request: Request) -> Response:
    message = await read_json(request)
    path, recursive = _wish(message)
    has_entries = field(message, "includeEntry", bool, False)
    identifier = await sandbox.watchers.create(path, recursive=recursive, has_entries=has_entries)
    return JSONResponse({"watcherId": identifier})


async def get_watcher_events(sandbox: E2bSandbox, request: Request) -> Response:
    identifier = field(await read_json(request), "watcherId", str)
    watcher = sandbox.watchers.find(identifier)
    events = watcher.take()
    if watcher.has_entries:
        events = [event | await _entry(sandbox, watcher.folder, event) for event in events]
    return JSONResponse({"events": events})


async def remove_watcher(sandbox: E2bSandbox, request: Request) -> Response:
    await sandbox.watchers.remove(field(await read_json(request), "watcherId", str))
    return JSONResponse({})
