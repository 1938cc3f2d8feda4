"""Fresh runs and cold commands, against plain python."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio

from fumehood.cli.bench.measurement import (
    Row,
    command,
    descendants,
    in_thread,
    in_turns,
    per_second,
    private_memory_mib,
)
from fumehood.sandbox.async_sandbox import AsyncSandbox

PROGRAM = "print(1)"
_AT_ONCE = 8


def interpreter() -> str:
    """The interpreter itself, not the link to it in a virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def plain_python() -> list[str]:
    return [interpreter(), "-I", "-S", "-c", PROGRAM]


def hood_run() -> list[str] | None:
    hood = shutil.which("hood", path=os.path.dirname(sys.executable)) or shutil.which("hood")
    return None if hood is None else [hood, "run", "-c", PROGRAM]


def compiled() -> dict[str, str]:
    """Variables under which `hood` starts as it does for a user: what was imported once is compiled."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}


def runner(box: AsyncSandbox, code: str = PROGRAM) -> Callable[[], Awaitable[object]]:
    async def run() -> None:
        result = await box.run(code)
        if not result.ok:
            raise RuntimeError(f"the sandboxed program failed: {result.stderr} {result.detail}")

    return run


async def measure(rounds: int) -> AsyncIterator[Row]:
    async with AsyncSandbox() as box:
        for steps in (_latency, _throughput, _memory):
            async for row in steps(box, rounds):
                yield row


async def _latency(box: AsyncSandbox, rounds: int) -> AsyncIterator[Row]:
    ours, baseline = await in_turns(rounds, runner(box), command(plain_python()))
    yield Row("fresh run / python -I -S", ours, against=baseline, budget="<= 0.5x")
    ours, baseline = await in_turns(rounds, runner(box), command([interpreter(), "-c", PROGRAM]))
    yield Row("fresh run / python (with site)", ours, against=baseline)


async def _throughput(box: AsyncSandbox, rounds: int) -> AsyncIterator[Row]:
    processors = len(os.sched_getaffinity(0))
    ours = await per_second(runner(box), rounds * 4, _AT_ONCE)
    strict = await per_second(in_thread(plain_python()), rounds * 4, processors)
    usual = await per_second(in_thread([interpreter(), "-c", PROGRAM]), rounds, processors)
    yield Row("runs per second / python -I -S", ours, "/s", strict)
    yield Row("runs per second / python (with site)", ours, "/s", usual, ">= 2.5x")


async def _memory(box: AsyncSandbox, rounds: int) -> AsyncIterator[Row]:
    await box.run(PROGRAM)
    await anyio.sleep(0.1)  # until the next runs stand by
    used = [private_memory_mib(process) for process in descendants(os.getpid())]
    yield Row("memory of an idle cell with 2 standbys, private", sum(used), "M")


async def measure_cold(rounds: int) -> AsyncIterator[Row]:
    name, hood = "hood run, cold / python -I -S", hood_run()
    if hood is None:
        yield Row(name, missing="the hood command is not on the path")
        return
    ours, baseline = await in_turns(max(3, rounds // 4), command(hood, compiled()), command(plain_python()))
    yield Row(name, ours, against=baseline)
