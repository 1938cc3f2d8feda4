"""A server of the tests' own: in a thread of the test process, with a tenant that may do everything."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from fumehood.audit import AuditLog, Trail
from fumehood.server.channel import Channel
from fumehood.server.identity.keys import create_key
from fumehood.server.identity.principals import Scope
from fumehood.server.sandboxes.open_sandbox import Times
from fumehood.server.sandboxes.registry import Registry
from fumehood.server.storage.sqlite import SqliteDatabase
from fumehood.server.tenants.quotas import Quota, set_limit

TENANT = "acme"


class TestServer(NamedTuple):
    url: str
    key: str
    folder: Path


@contextmanager
def running_server() -> Iterator[TestServer]:
    ready: Future[TestServer] = Future()
    end = threading.Event()
    with tempfile.TemporaryDirectory(prefix="hood-server-") as folder:
        thread = threading.Thread(target=lambda: asyncio.run(_serve(Path(folder), ready, end)), daemon=True)
        thread.start()
        try:
            yield ready.result(30)
        finally:
            end.set()
            thread.join(30)


async def _serve(folder: Path, ready: Future[TestServer], end: threading.Event) -> None:
    database = SqliteDatabase(folder / "server.db")
    await database.prepare()
    for quota in (Quota.SANDBOXES, Quota.OPENINGS, Quota.CPU):
        await set_limit(database, TENANT, quota, 1_000_000, "the tests")
    key, _ = await create_key(database, TENANT, "tests", Scope)
    registry, log = Registry(database, "tests"), AuditLog.default()
    channel = Channel(database, registry, lambda principal: Trail(log, principal.name, principal.tenant), Times())
    app = Starlette(routes=[WebSocketRoute("/v1/channel", channel.serve)])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="off", ws_max_size=1024 * 1024))
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    ready.set_result(TestServer(f"http://127.0.0.1:{port}", key, folder))
    await asyncio.get_running_loop().run_in_executor(None, end.wait)
    await registry.drain(0)
    server.should_exit = True
    await serving
    await database.close()
