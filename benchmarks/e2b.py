"""E2B's SDK for Python against a server of ours: create, command, kill; beside the same with a sandbox of our own."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from fumehood.cli.bench.measurement import Row, in_turns
from fumehood.policy import Policy
from fumehood.sandbox.async_sandbox import AsyncSandbox
from fumehood.server.e2b import e2b_app
from fumehood.server.identity.keys import create_key
from fumehood.server.identity.principals import Scope
from fumehood.server.lifetime import open_server
from fumehood.server.settings import ServerSettings
from fumehood.server.tenants.quotas import Quota, set_limit

_ROUNDS = 20


async def measure() -> AsyncIterator[Row]:
    with tempfile.TemporaryDirectory(prefix="hood-bench-", dir="/var/tmp") as disk, _serving(Path(disk)):
        from e2b import AsyncSandbox as E2bSandbox

        policy = Policy(filesystem={"outputs": ["**"]})

        async def create_command_kill() -> None:
            box = await E2bSandbox.create(timeout=60)
            await box.commands.run("echo hello")
            await box.kill()

        async def own_sandbox() -> None:
            async with AsyncSandbox(policy, keep_tmp=True, audit=Path(disk, "own")) as box:
                await box.run(argv=["/bin/bash", "-l", "-c", "echo hello"])

        ours, own = await in_turns(_ROUNDS, create_command_kill, own_sandbox)
        yield Row("E2B's SDK: create, command, kill / a sandbox of our own", ours, against=own)
        box = await E2bSandbox.create(timeout=60)

        async def command() -> None:
            await box.commands.run("echo hello")

        async def write_and_read() -> None:
            await box.files.write("x", "content")  # pyright: ignore[reportUnknownMemberType]  # a file of unknown kind
            await box.files.read("x")

        commands, files = await in_turns(_ROUNDS, command, write_and_read)
        yield Row("E2B's SDK: a command", commands)
        yield Row("E2B's SDK: a file in and out", files)
        await box.kill()


@contextmanager
def _serving(folder: Path) -> Iterator[None]:
    """A server in a thread of its own, and the variables that lead the SDK to it."""
    listener, ready = socket.create_server(("127.0.0.1", 0)), threading.Event()
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as that of `hood serve`
    servers: list[uvicorn.Server] = []

    async def serve() -> None:
        settings = ServerSettings(state=str(folder), strict=False)
        async with open_server(settings, print) as server:
            await set_limit(server.database, "bench", Quota.OPENINGS, 10_000, "bench")
            key, _ = await create_key(server.database, "bench", "bench", [Scope.RUN])
            app = e2b_app(server.database, server.registry, server.chains.trail_of)
            servers.append(uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off")))
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            os.environ.update(E2B_API_KEY=key, E2B_API_URL=url, E2B_SANDBOX_URL=url)
            ready.set()
            await servers[0].serve([listener])

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        servers[0].should_exit = True
        thread.join()
