"""A server of E2B's protocol on the loopback, in a thread of its own, with two tenants."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from fumehood.audit import Trail
from fumehood.server.e2b import e2b_app
from fumehood.server.identity.keys import create_key, e2b_spelling
from fumehood.server.identity.principals import Scope
from fumehood.server.sandboxes.registry import Registry
from fumehood.server.storage.sqlite import SqliteDatabase
from fumehood.server.tenants.catalogue import put_policy

POLICIES = {
    "web": "version: 1\nfilesystem: {outputs: ['**']}\nnetwork: {publish: [8000]}\n",
    "online": (
        "version: 1\nnetwork:\n  allow:\n"
        + "".join(f"  - {{host: '{host}', ports: [443]}}\n" for host in ("api.example.com", "*.example.org"))
    ),
    "small": "version: 1\nfilesystem: {outputs: ['out/**'], workspace: {size: 1M}}\ncommands: {deny: ['rm *']}\n",
}


@dataclass(frozen=True)
class E2bServer:
    port: int
    key: str
    foreign_key: str
    """Of another tenant."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """All that a program needs to use this server instead of E2B's."""
        return {"E2B_API_KEY": self.key, "E2B_API_URL": self.url, "E2B_SANDBOX_URL": self.url}


class _Thread:
    def __init__(self, folder: Path) -> None:
        self._folder, self._ready = folder, threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.server: E2bServer | None = None
        self._uvicorn: uvicorn.Server | None = None

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._ready.set()
            self._listener.close()

    async def _serve(self) -> None:
        database = SqliteDatabase(self._folder / "server.sqlite")
        await database.prepare()
        keys = [(await create_key(database, name, "tests", [Scope.RUN]))[0] for name in ("acme", "other")]
        for name, text in POLICIES.items():
            await put_policy(database, "acme", name, text, "tests")
        registry = Registry(database, "tests")
        app = e2b_app(database, registry, lambda principal: Trail())
        self._uvicorn = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        self.server = E2bServer(self._listener.getsockname()[1], *map(e2b_spelling, keys))
        self._ready.set()
        try:
            await self._uvicorn.serve([self._listener])
        finally:
            await registry.drain(0)
            await database.close()

    def start(self) -> E2bServer:
        self._thread.start()
        assert self._ready.wait(60)
        assert self.server is not None
        return self.server

    def stop(self) -> None:
        assert self._uvicorn is not None
        self._uvicorn.should_exit = True
        self._uvicorn.force_exit = True
        self._thread.join(60)


@contextmanager
def serving(folder: Path) -> Iterator[E2bServer]:
    thread = _Thread(folder)
    server = thread.start()
    try:
        yield server
    finally:
        thread.stop()
