"""Fresh runs and cold commands, against plain python."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

import anyio

from fumehood.blocking import Sandbox, run
from fumehood.cli.bench.measurement import (
    Row,
    command,
    descendants,
    in_thread,
    in_turns,
    in_turns_blocking,
    per_second,
    private_memory_mib,
)
from fumehood.policy import Policy, Resources
from fumehood.results import RunResult
from fumehood.sandbox.async_sandbox import AsyncSandbox

PROGRAM = "print(1)"
_AT_ONCE = 8
_IDLE_SECONDS = 0.05
_REST_SECONDS = 0.5


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
        _check(await box.run(code))

    return run


def _check(result: RunResult) -> None:
    if not result.ok:
        raise RuntimeError(f"the sandboxed program failed: {result.stderr} {result.detail}")


async def measure(rounds: int) -> AsyncIterator[Row]:
    async with AsyncSandbox() as box:
        for steps in (_latency, _throughput, _memory):
            async for row in steps(box, rounds):
                yield row
    for more in (_blocking, _new_policies):
        async for row in more(rounds):
            yield row


async def _latency(box: AsyncSandbox, rounds: int) -> AsyncIterator[Row]:
    ours, baseline = await in_turns(rounds, runner(box), command(plain_python()))
    yield Row("fresh run / python -I -S", ours, against=baseline, budget="<= 0.35x")
    ours, baseline = await in_turns(rounds, runner(box), command([interpreter(), "-c", PROGRAM]))
    yield Row("fresh run / python (with site)", ours, against=baseline)


async def _blocking(rounds: int) -> AsyncIterator[Row]:
    """The blocking API, as scripts and notebooks call it."""
    one_shot, baseline = lambda: _check(run(PROGRAM)), command(plain_python())
    ours, theirs = await in_turns_blocking(rounds, one_shot, baseline)
    yield Row("fumehood.run() / python -I -S", ours, against=theirs, budget="<= 0.5x")
    ours, theirs = await in_turns_blocking(rounds, one_shot, baseline, idle_seconds=_IDLE_SECONDS)
    yield Row("fumehood.run() after 50 ms / python -I -S", ours, against=theirs, budget="<= 0.5x")
    with Sandbox() as box:
        ours, theirs = await in_turns_blocking(rounds, lambda: _check(box.run(PROGRAM)), baseline)
    yield Row("run in an open Sandbox / python -I -S", ours, against=theirs, budget="<= 0.4x")


async def _throughput(box: AsyncSandbox, rounds: int) -> AsyncIterator[Row]:
    processors = len(os.sched_getaffinity(0))
    ours = await per_second(runner(box), rounds * 4, _AT_ONCE)
    strict = await per_second(in_thread(plain_python()), rounds * 4, processors)
    usual = await per_second(in_thread([interpreter(), "-c", PROGRAM]), rounds, processors)
    yield Row("runs per second / python -I -S", ours, "/s", strict)
    yield Row("runs per second / python (with site)", ours, "/s", usual, ">= 2.5x")


async def _memory(box: AsyncSandbox, rounds: int) -> AsyncIterator[Row]:
    await box.run(PROGRAM)
    await anyio.sleep(_REST_SECONDS)  # until the next runs stand by, and an interpreter waits for the next policy
    of_cell = {process for parent in descendants(os.getpid()) for process in descendants(parent)}
    waiting = set(descendants(os.getpid())) - of_cell
    yield Row("memory of an idle cell with 2 standbys, private", _private_mib(of_cell), "M", budget="<= 10 M")
    yield Row("memory of the interpreter for the next policy", _private_mib(waiting), "M")


def _private_mib(processes: Iterable[int]) -> float:
    return sum(map(private_memory_mib, processes))


async def _new_policies(rounds: int) -> AsyncIterator[Row]:
    """In a process that has used other policies before: each round has one that no round had."""
    memory_mib = itertools.count(256)

    async def first_run() -> None:
        async with AsyncSandbox(Policy(resources=Resources(memory=next(memory_mib) * 1024**2))) as box:
            await runner(box)()

    async def rest() -> None:
        await anyio.sleep(_REST_SECONDS)

    jobs = (first_run, rest, command(plain_python()))
    ours, _, baseline = await in_turns(max(3, rounds // 4), *jobs)
    yield Row("first run of a new policy / python -I -S", ours, against=baseline, budget="<= 4x")
