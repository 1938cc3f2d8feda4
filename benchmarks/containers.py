"""Containers: a sandbox of the warm pool against `docker run` and against AutoGen's own executor."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import anyio

from benchmarks import rivals
from fumehood.cli.bench.measurement import Row, command, in_turns
from fumehood.errors import FumehoodError
from fumehood.policy import Policy
from fumehood.sandbox.async_sandbox import AsyncSandbox

_RUNTIMES = {"docker": (), "gvisor": ("--runtime", "runsc")}
_PARALLEL = 50
# A container of fifty needs little, and fifty of the usual size need a large machine.
_SMALL = {"resources": {"memory": "64M", "cpus": 0.1}}


async def measure(rounds: int) -> AsyncIterator[Row]:
    few = max(3, rounds // 6)
    for backend, options in _RUNTIMES.items():
        policy = Policy(backend=backend)
        name = f"{backend}: fresh, from the pool / docker run"
        rival = rivals.docker(*options)
        if rival is None:
            yield Row(name, missing="no Docker engine with an image answers")
            continue
        try:
            await _use_once(policy)
        except FumehoodError as error:
            yield Row(name, missing=str(error).splitlines()[0][:60])
            continue
        # The pool makes the next container meanwhile, as it does while somebody thinks about what to run next.
        ours, baseline, _ = await in_turns(few, partial(_use_once, policy), command(rival), partial(anyio.sleep, 3))
        yield Row(name, ours, against=baseline, budget="<= 0.125x")
        async for row in _executors(backend, policy, few):
            yield row
    async for row in _parallel_opens():
        yield row


async def _use_once(policy: Policy) -> None:
    async with AsyncSandbox(policy) as box:
        result = await box.run(rivals.PROGRAM)
        if not result.ok:
            raise RuntimeError(f"the sandboxed program failed: {result.stderr} {result.detail}")


async def _executors(backend: str, policy: Policy, rounds: int) -> AsyncIterator[Row]:
    """A run in a place that is open, and closing it."""
    rival = rivals.autogen()
    if rival is None:
        yield Row(f"{backend}: run / AutoGen's executor", missing="autogen-ext[docker] is not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o705)  # its container runs as the image's user
        async with AsyncExitStack() as ours, AsyncExitStack() as theirs:
            box = await ours.enter_async_context(AsyncSandbox(policy))
            executor = await theirs.enter_async_context(rival(folder))
            run, baseline = await in_turns(rounds, lambda: box.run(rivals.PROGRAM), lambda: _execute(executor))
            yield Row(f"{backend}: run / AutoGen's executor", run, against=baseline)
            closing, stopping = await _milliseconds(ours.aclose()), await _milliseconds(theirs.aclose())
            yield Row(f"{backend}: closing / AutoGen's executor", closing, against=stopping)


async def _milliseconds(work: Awaitable[None]) -> float:
    started = time.perf_counter()
    await work
    return (time.perf_counter() - started) * 1000


async def _execute(executor: Any) -> None:
    from autogen_core import CancellationToken
    from autogen_core.code_executor import CodeBlock

    # Not as a block of Python: for that it wants a command that not every image has.
    block = CodeBlock(f"python3 -I -S -c '{rivals.PROGRAM}'", "sh")
    done = await executor.execute_code_blocks([block], CancellationToken())
    if done.exit_code:
        raise RuntimeError(f"AutoGen's program failed: {done.output}")


async def _parallel_opens() -> AsyncIterator[Row]:
    """Against as many one after the other; none of them comes from the pool."""
    name = f"{_PARALLEL} containers opened at once / in turn"
    policy = Policy(backend="docker", **_SMALL)
    try:
        await _use_once(policy)
    except FumehoodError as error:
        yield Row(name, missing=str(error).splitlines()[0][:60])
        return
    in_turn = await _open(policy, at_once=1)
    yield Row(name, await _open(policy, at_once=_PARALLEL), against=in_turn)


async def _open(policy: Policy, at_once: int) -> float:
    """Milliseconds until all are open."""
    limiter = anyio.CapacityLimiter(at_once)
    async with AsyncExitStack() as stack:
        started = time.perf_counter()

        async def one() -> None:
            async with limiter:
                await stack.enter_async_context(AsyncSandbox(policy))

        async with anyio.create_task_group() as group:
            for _ in range(_PARALLEL):
                group.start_soon(one)
        return (time.perf_counter() - started) * 1000
