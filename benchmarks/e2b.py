"""E2B's SDK for Python against a server of ours: create, command, kill; beside the same with a sandbox of our own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.hood_server import serving
from fumehood.cli.bench.measurement import Row, in_turns
from fumehood.policy import Policy
from fumehood.sandbox.async_sandbox import AsyncSandbox

_ROUNDS = 20


async def measure() -> AsyncIterator[Row]:
    with tempfile.TemporaryDirectory(prefix="hood-bench-", dir="/var/tmp") as disk:
        async with serving(Path(disk, "state")) as server:
            os.environ.update(server.e2b_variables)
            async for row in _rows(Path(disk)):
                yield row


async def _rows(disk: Path) -> AsyncIterator[Row]:
    from e2b import AsyncSandbox as E2bSandbox

    policy = Policy(filesystem={"outputs": ["**"]})

    async def create_command_kill() -> None:
        box = await E2bSandbox.create(timeout=60)
        await box.commands.run("echo hello")
        await box.kill()

    async def own_sandbox() -> None:
        async with AsyncSandbox(policy, keep_tmp=True, audit=disk / "own") as box:
            await box.run(argv=["/bin/bash", "-l", "-c", "echo hello"])

    ours, own = await in_turns(_ROUNDS, create_command_kill, own_sandbox)
    yield Row("E2B's SDK: create, command, kill / a sandbox of our own", ours, against=own, budget="<= 60 ms")
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
