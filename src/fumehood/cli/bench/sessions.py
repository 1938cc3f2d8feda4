"""Sessions and streams: what starting one costs, a run in it, many that wait, and how soon output is seen."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from fumehood.cli.bench.measurement import Row, command, descendants, in_turns, private_memory_mib
from fumehood.events import Stdout
from fumehood.sandbox.async_sandbox import AsyncSandbox

_IDLE_SESSIONS = 200
# Writes the time at which it writes, and waits in between: what is measured is the way out.
_TICKING = "import os, time\nfor n in range({}):\n  os.write(1, b'%d\\n' % time.monotonic_ns())\n  time.sleep(0.005)"


async def measure(plain: list[str], rounds: int) -> AsyncIterator[Row]:
    async with AsyncSandbox() as box:
        await box.run("pass")
        started, baseline = await in_turns(rounds, lambda: _open_and_close(box), command(plain))
        yield Row("start a session / python -I -S", started, against=baseline)
        async with box.session() as session:
            run, baseline = await in_turns(rounds, lambda: session.run("print(1)"), command(plain))
        yield Row("run in a session / python -I -S", run, against=baseline)
        yield Row("output seen after, median", await _delay_ms(box, rounds), budget="<= 20 ms")
        yield Row(f"memory of each of {_IDLE_SESSIONS} idle sessions", await _idle_mib(box), "M", budget="<= 6 M")


async def _open_and_close(box: AsyncSandbox) -> None:
    async with box.session():
        pass


async def _delay_ms(box: AsyncSandbox, rounds: int) -> float:
    delays: list[float] = []
    async for event in box.stream(_TICKING.format(rounds)):
        if isinstance(event, Stdout):
            seen = time.monotonic_ns()
            delays += [(seen - int(line)) / 1e6 for line in event.data.split()]
    return statistics.median(delays)


async def _idle_mib(box: AsyncSandbox) -> float:
    """Private memory of all their processes; each has run something."""
    before = _private_mib()
    async with AsyncExitStack() as stack:
        for _ in range(_IDLE_SESSIONS):
            session = await stack.enter_async_context(box.session())
            await session.run("x = 1")
        return (_private_mib() - before) / _IDLE_SESSIONS


def _private_mib() -> float:
    return sum(private_memory_mib(process) for process in descendants(os.getpid()))
