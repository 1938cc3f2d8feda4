"""E2B's SDK for Python against a server of ours: create, command, kill; beside the same with a sandbox of our own."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

from fumehood.cli.bench.measurement import Row, in_turns
from fumehood.policy import Policy
from fumehood.sandbox.async_sandbox import AsyncSandbox

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
    """A server in a process of its own, and the variables that lead the SDK to it."""
    command = [sys.executable, "-m", "benchmarks.e2b", str(folder / "state")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            os.environ.update(json.loads(process.stdout.readline()))
            yield
        finally:
            process.stdin.close()  # which ends it


async def _serve(folder: str) -> None:
    import uvicorn

    from fumehood.server.e2b import e2b_app
    from fumehood.server.identity.keys import create_key
    from fumehood.server.identity.principals import Scope
    from fumehood.server.lifetime import open_server
    from fumehood.server.settings import ServerSettings
    from fumehood.server.tenants.quotas import Quota, set_limit

    async with open_server(ServerSettings(state=folder, strict=False), print) as server:
        await set_limit(server.database, "bench", Quota.OPENINGS, 10_000, "bench")
        key, _ = await create_key(server.database, "bench", "bench", [Scope.RUN])
        app = e2b_app(server.database, server.registry, server.chains.trail_of)
        listening = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        asyncio.get_running_loop().add_reader(sys.stdin, setattr, listening, "should_exit", True)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as that of `hood serve`
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            print(json.dumps({"E2B_API_KEY": key, "E2B_API_URL": url, "E2B_SANDBOX_URL": url}), flush=True)
            await listening.serve([listener])


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
