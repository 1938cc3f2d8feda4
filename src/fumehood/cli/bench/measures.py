"""What is measured, row by row."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
from anyio import to_thread

from fumehood.cli.bench import agents, audits, calls, containers, egress, rivals, runtimes, sessions, transfers
from fumehood.cli.bench.rows import Row
from fumehood.cli.bench.timing import command, descendants, in_thread, in_turns, per_second, private_memory_mib
from fumehood.environments import EnvironmentStore, Wishes
from fumehood.errors import FumehoodError
from fumehood.policy import Policy
from fumehood.sandbox.sandbox import Sandbox, sandboxed_installer

_PANDAS = {"environment": {"packages": ["pandas"], "preload": ["pandas"]}, "resources": {"memory": "2G"}}
_AT_ONCE = 8


Group = Callable[[int], AsyncIterator[Row]]


def groups(many_records: int) -> dict[str, Group]:
    """What can be measured by itself, in the order of the table; each is told how often."""
    return {
        "runs": _runs,
        "cold": _cold,
        "audit": lambda rounds: audits.measure(rounds, many_records),
        "packages": _packages,
        "sessions": lambda rounds: sessions.measure(_plain(), rounds),
        "calls": calls.measure,
        "agents": agents.measure,
        "files": lambda _: transfers.measure(),
        "gateway": lambda _: egress.measure(),
        "runtime": runtimes.measure,
        "containers": containers.measure,
    }


def _plain() -> list[str]:
    return [rivals.interpreter(), "-I", "-S", "-c", rivals.PROGRAM]


async def _runs(rounds: int) -> AsyncIterator[Row]:
    async with Sandbox() as box:
        for steps in (_latency, _throughput, _memory):
            async for row in steps(box, _plain(), rounds):
                yield row


def _runner(box: Sandbox, code: str) -> Callable[[], Awaitable[object]]:
    async def run() -> None:
        result = await box.run(code)
        if not result.ok:
            raise RuntimeError(f"the sandboxed program failed: {result.stderr} {result.detail}")

    return run


async def _latency(box: Sandbox, plain: list[str], rounds: int) -> AsyncIterator[Row]:
    fresh = _runner(box, rivals.PROGRAM)
    ours, baseline = await in_turns(rounds, fresh, command(plain))
    yield Row("fresh run / python -I -S", ours, against=baseline, budget="<= 0.5x")
    ours, baseline = await in_turns(rounds, fresh, command([rivals.interpreter(), "-c", rivals.PROGRAM]))
    yield Row("fresh run / python (with site)", ours, against=baseline)
    rows = (("fresh run / bubblewrap + python", rivals.bubblewrap()), ("fresh run / docker run", rivals.docker()))
    for name, argv in rows:
        if argv is None:
            yield Row(name, missing="not installed here")
            continue
        ours, baseline = await in_turns(max(3, rounds // 4), fresh, command(argv))
        yield Row(name, ours, against=baseline, budget="<= 1/40x" if "docker" in name else "")


async def _throughput(box: Sandbox, plain: list[str], rounds: int) -> AsyncIterator[Row]:
    count = rounds * 4
    ours = await per_second(_runner(box, rivals.PROGRAM), count, _AT_ONCE)
    strict = await per_second(in_thread(plain), count, len(os.sched_getaffinity(0)))
    usual = await per_second(
        in_thread([rivals.interpreter(), "-c", rivals.PROGRAM]), rounds, len(os.sched_getaffinity(0))
    )
    yield Row("runs per second / python -I -S", ours, "/s", strict)
    yield Row("runs per second / python (with site)", ours, "/s", usual, ">= 2.5x")


async def _memory(box: Sandbox, plain: list[str], rounds: int) -> AsyncIterator[Row]:
    await box.run(rivals.PROGRAM)
    await anyio.sleep(0.1)  # until the next runs stand by
    processes = descendants(os.getpid())
    used = [private_memory_mib(process) for process in processes]
    yield Row("memory of an idle cell with 2 standbys, private", sum(used), "M")


async def _cold(rounds: int) -> AsyncIterator[Row]:
    hood = shutil.which("hood", path=os.path.dirname(sys.executable)) or shutil.which("hood")
    if hood is None:
        yield Row("hood run, cold / python -I -S", missing="the hood command is not on the path")
        return
    few = max(3, rounds // 4)
    # As it is for a user: what was imported once is compiled.
    cold = command([hood, "run", "-c", rivals.PROGRAM], {**os.environ, "PYTHONDONTWRITEBYTECODE": ""})
    ours, baseline = await in_turns(few, cold, command(_plain()))
    yield Row("hood run, cold / python -I -S", ours, against=baseline)
    docker = rivals.docker()
    if docker is not None:
        ours, baseline = await in_turns(few, cold, command(docker))
        yield Row("hood run, cold / docker run", ours, against=baseline, budget="< 1x")


async def _packages(rounds: int) -> AsyncIterator[Row]:
    """The same packages on both sides: those of the sandbox's environment."""
    name, code, few = "fresh run with pandas / python + import pandas", "import pandas; print(1)", max(3, rounds // 4)
    policy = Policy(**_PANDAS)
    try:
        folder = await to_thread.run_sync(_install, policy)
    except FumehoodError as error:
        yield Row(name, missing=f"not installed: {str(error).splitlines()[0]}")
        return
    async with Sandbox(policy) as box:
        plain = command([rivals.interpreter(), "-S", "-c", code], {"PYTHONPATH": folder})
        ours, baseline = await in_turns(few, _runner(box, code), plain)
    yield Row(name, ours, against=baseline, budget="<= 0.04x")


def _install(policy: Policy) -> str:
    wishes = Wishes.of(policy.environment)
    store = EnvironmentStore.open_default(sandboxed_installer())
    return str(store.build(wishes, lambda line: print(line, file=sys.stderr)).folder)
