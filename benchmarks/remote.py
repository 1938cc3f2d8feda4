"""Sandboxes at a server against the same on this machine, and what one tenant notices of another."""

from __future__ import annotations

import asyncio
import http.client
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fumehood
from benchmarks.floods import FLOODS, OF_PROGRAMS, flooding
from benchmarks.hood_server import POLICY, BenchServer, serving
from fumehood.cli.bench.measurement import Row, in_turns, memory_kib
from fumehood.cli.bench.runs import PROGRAM
from fumehood.policy import Policy
from fumehood.sandbox.async_sandbox import AsyncSandbox
from fumehood.sandbox.interface import AnySandbox

_CLIENTS, _RUNS_EACH = 100, 3
_IDLE_SANDBOXES = 50
_FILE_BYTES = 1024 * 1024
_IN_FLOODS = 12


async def measure(rounds: int) -> AsyncIterator[Row]:
    with tempfile.TemporaryDirectory(prefix="hood-bench-", dir="/var/tmp") as disk:
        async with serving(Path(disk, "state")) as server:
            for part in (_runs(server, Path(disk), rounds), _clients(server, Path(disk)), _idle(server), _file(server)):
                async for row in part:
                    yield row
            async for row in _floods(server):
                yield row
        async for row in _databases(Path(disk), rounds):
            yield row


async def _runs(server: BenchServer, disk: Path, rounds: int) -> AsyncIterator[Row]:
    hood = fumehood.connect(server.url, server.key)
    async with hood.sandbox("base") as there, AsyncSandbox(Policy.loads(POLICY), audit=disk / "own") as here:
        remote, local = await in_turns(rounds, lambda: there.run(PROGRAM), lambda: here.run(PROGRAM))
        yield Row("run at a server / here", remote, against=local, budget="<= 1.35x")
        async with there.session() as far, here.session() as near:
            remote, local = await in_turns(rounds, lambda: far.run(PROGRAM), lambda: near.run(PROGRAM))
        yield Row("run in a session at a server / here", remote, against=local, budget="<= 1.4x")


async def _clients(server: BenchServer, disk: Path) -> AsyncIterator[Row]:
    """Each with a sandbox and a connection of its own; here, as many sandboxes in one process."""
    hood, policy = fumehood.connect(server.url, server.key), Policy.loads(POLICY)
    async with AsyncExitStack() as stack:
        there = [await stack.enter_async_context(hood.sandbox("base")) for _ in range(_CLIENTS)]
        opened = [AsyncSandbox(policy, audit=disk / "own") for _ in range(_CLIENTS)]
        here = [await stack.enter_async_context(box) for box in opened]
        remote, local = await in_turns(3, lambda: _all_run(there), lambda: _all_run(here))
    count = _CLIENTS * _RUNS_EACH * 1000
    name = f"{_CLIENTS} clients at once, runs per second / here"
    yield Row(name, count / remote, "/s", count / local, ">= 0.8x")


async def _all_run(boxes: Sequence[AnySandbox]) -> None:
    async def some(box: AnySandbox) -> None:
        for _ in range(_RUNS_EACH):
            (await box.run(PROGRAM)).check()

    await asyncio.gather(*map(some, boxes))


async def _idle(server: BenchServer) -> AsyncIterator[Row]:
    hood = fumehood.connect(server.url, server.key)
    async with hood.sandbox("base") as first, AsyncExitStack() as stack:
        await first.run(PROGRAM)
        before = _private_mib(server.process)
        for _ in range(_IDLE_SANDBOXES):
            box = await stack.enter_async_context(hood.sandbox("base"))
            await box.run(PROGRAM)
        each = (_private_mib(server.process) - before) / _IDLE_SANDBOXES
    yield Row(f"memory of each of {_IDLE_SANDBOXES} idle sandboxes at a server", each, "M", budget="<= 5 M")


def _private_mib(process: int) -> float:
    """Of a process and all below it."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    own = memory_kib(process, "Private_Dirty:", "Private_Clean:") / 1024
    return own + sum(_private_mib(int(child)) for child in children)


async def _file(server: BenchServer) -> AsyncIterator[Row]:
    """A client that hangs up in the middle leaves a service inside that is made anew for the next one."""
    async with fumehood.connect(server.url, server.key).sandbox("base") as box:
        await box.files.write("x", bytes(_FILE_BYTES))
        place = f"/v1/sandboxes/{box.id}/files/x"
        whole = await asyncio.to_thread(_first_bytes, server, place, is_whole=True)
        broken = await asyncio.to_thread(_first_bytes, server, place, is_whole=False)
    name = "first byte of a file of 1 MiB over HTTP"
    yield Row(name, whole, budget="<= 3 ms")
    yield Row(f"{name}, after a client that hung up in the middle of it", broken)


def _first_bytes(server: BenchServer, place: str, *, is_whole: bool) -> float:
    """Median milliseconds, each with a connection of its own."""
    headers, parts = {"Authorization": f"Bearer {server.key}"}, urlsplit(server.url)
    samples: list[float] = []
    for _ in range(21):
        with closing(http.client.HTTPConnection(parts.hostname or "", parts.port)) as connection:
            started = time.perf_counter()
            connection.request("GET", place, headers=headers)
            answer = connection.getresponse()
            answer.read(1)
            samples.append((time.perf_counter() - started) * 1000)
            if is_whole:
                answer.read()
    return statistics.median(samples[1:])


async def _floods(server: BenchServer) -> AsyncIterator[Row]:
    """A run of another tenant, before and while one tenant does its worst."""
    async with fumehood.connect(server.url, server.key).sandbox("base") as box:
        for name in FLOODS:
            (calm,) = await in_turns(_IN_FLOODS, lambda: box.run(PROGRAM))
            with flooding(name, server.hostile):
                (flooded,) = await in_turns(_IN_FLOODS, lambda: box.run(PROGRAM))
            kind = "programs" if name in OF_PROGRAMS else "a flood"
            yield Row(f"run of another tenant in {kind}: {name} / calm", flooded, against=calm)


async def _databases(disk: Path, rounds: int) -> AsyncIterator[Row]:
    name = "sandbox opened, run, closed: PostgreSQL / SQLite"
    with _postgres() as create:
        if create is None:
            yield Row(name, missing="postgresql is not installed")
            return
        async with serving(disk / "lite") as lite, serving(disk / "postgres", create()) as shared:
            first, second = (fumehood.connect(each.url, each.key) for each in (shared, lite))
            ours, theirs = await in_turns(
                rounds, lambda: first.run(PROGRAM, "base"), lambda: second.run(PROGRAM, "base")
            )
    yield Row(name, ours, against=theirs, budget="<= 1.3x")


@contextmanager
def _postgres() -> Iterator[Callable[[], str] | None]:
    """That of the tests."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    postgresql: Any = import_module("postgresql")
    if postgresql.PROGRAMS is None:
        yield None
        return
    with postgresql.running() as server:
        yield server.create_database
