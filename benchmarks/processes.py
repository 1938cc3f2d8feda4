"""Messages between two processes: the runtime on NATS, side by side with AutoGen's gRPC runtime."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol

import anyio

from benchmarks.runtimes import Greeting, Reply
from fumehood.audit import AuditLog
from fumehood.cli.bench.measurement import AsyncJob, Row, in_turns
from fumehood.runtime.nats import NatsRuntime

_MESSAGES = 256
_AT_ONCE = 64


class Asker(Protocol):
    async def ask(self) -> None: ...


async def measure(rounds: int) -> AsyncIterator[Row]:
    name, few = "messages answered by another process", max(3, rounds // 6)
    if shutil.which("nats-server") is None:
        yield Row(f"{name} / AutoGen gRPC", missing="nats-server is not installed here")
        return
    with tempfile.TemporaryDirectory(prefix="hood-bench-", dir="/var/tmp") as folder:
        async with AsyncExitStack() as stack:
            plain = await stack.enter_async_context(_on_nats(f"{folder}/plain", audited=False))
            audited = await stack.enter_async_context(_on_nats(f"{folder}/audited", audited=True))
            rival = await stack.enter_async_context(_on_autogen())
            theirs, ours, recorded = await in_turns(few, _at_once(rival), _at_once(plain), _at_once(audited))
            rates = [_MESSAGES / milliseconds * 1000 for milliseconds in (ours, theirs, recorded)]
            yield Row(f"{name}, {_AT_ONCE} at once / AutoGen gRPC", rates[0], "/s", against=rates[1], budget=">= 3x")
            yield Row(f"{name}, {_AT_ONCE} at once, audit on / off", rates[2], "/s", against=rates[0])
            jobs = [_one_after_the_other(each) for each in (rival, plain, audited)]
            theirs, ours, recorded = [taken / _MESSAGES for taken in await in_turns(few, *jobs)]
            yield Row("one message to another process / AutoGen gRPC", ours, against=theirs, budget="<= 0.6x")
            yield Row("one message to another process, audit on / off", recorded, against=ours)


def _one_after_the_other(asker: Asker) -> AsyncJob:
    async def run() -> None:
        for _ in range(_MESSAGES):
            await asker.ask()

    return run


def _at_once(asker: Asker) -> AsyncJob:
    async def some() -> None:
        for _ in range(_MESSAGES // _AT_ONCE):
            await asker.ask()

    async def run() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(_AT_ONCE):
                group.start_soon(some)

    return run


class _NatsAsker:
    def __init__(self, runtime: NatsRuntime) -> None:
        self._runtime = runtime

    async def ask(self) -> None:
        await self._runtime.send(Greeting(name="Anna"), to="greeter")


@asynccontextmanager
async def _on_nats(prefix: str, *, audited: bool) -> AsyncIterator[Asker]:
    port = _free_port()
    server = ["nats-server", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", f"{prefix}-store"]
    url = f"nats://127.0.0.1:{port}"
    log = f"{prefix}-audit-of-greeter" if audited else ""
    async with _child(server, b""):
        await _until_listening(port)
        own = AuditLog.at(Path(f"{prefix}-audit")) if audited else False
        async with _greeter("nats", url, log), NatsRuntime(url, space="bench", audit=own) as runtime:
            for each in (Greeting, Reply):
                runtime.messages.add(each)
            yield _NatsAsker(runtime)


@asynccontextmanager
async def _on_autogen() -> AsyncIterator[Asker]:
    from autogen_ext.runtimes.grpc import GrpcWorkerAgentRuntime

    from benchmarks import autogen_agents

    address = f"127.0.0.1:{_free_port()}"
    async with _greeter("autogen", address, ""):
        runtime = GrpcWorkerAgentRuntime(address)
        await runtime.start()
        autogen_agents.introduce(runtime)
        try:
            yield autogen_agents.DistantSide(runtime)
        finally:
            await runtime.stop()


def _greeter(kind: str, address: str, log: str) -> AbstractAsyncContextManager[None]:
    return _child([sys.executable, "-m", "benchmarks.distant_greeter", kind, address, log], b"ready\n")


@asynccontextmanager
async def _child(command: list[str], greeting: bytes) -> AsyncIterator[None]:
    """A process that has written that line, and is ended afterwards."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=None if greeting else asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        if greeting and await process.stdout.readline() != greeting:
            raise RuntimeError(f"{' '.join(command)} did not start")
        yield
    finally:
        process.kill()
        await process.wait()


async def _until_listening(port: int) -> None:
    for _ in range(500):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.01)
        else:
            writer.close()
            return
    raise RuntimeError("nats-server did not start")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
