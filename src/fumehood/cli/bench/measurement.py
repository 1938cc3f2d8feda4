"""Rows of the table and how they are measured: in turns, so that both sides meet the same noise, by the median."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass

import anyio
from anyio import to_thread

Job = Callable[[], Awaitable[object] | None]
AsyncJob = Callable[[], Awaitable[object]]
BlockingJob = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Row:
    """One line: `value` against `against`, both in `unit`."""

    name: str
    value: float = 0.0
    unit: str = "ms"
    against: float | None = None
    budget: str = ""
    missing: str = ""

    @property
    def ratio(self) -> float | None:
        return None if self.against is None else self.value / self.against

    def to_dict(self) -> dict[str, object]:
        return {**asdict(self), "ratio": self.ratio}


async def in_turns(rounds: int, *jobs: Job, is_shuffled: bool = False) -> list[float]:
    """Median milliseconds of each job; the first round of each only warms up.

    Shuffled where all of them use one cell: it makes new standbys every few runs, and a job that always came after
    that would be the slower one.
    """
    samples: list[list[float]] = [[] for _ in jobs]
    for _ in range(rounds + 1):
        turns = [*zip(jobs, samples, strict=True)]
        for job, taken in random.sample(turns, len(turns)) if is_shuffled else turns:
            started = time.perf_counter()
            waiting = job()
            if waiting is not None:
                await waiting
            taken.append((time.perf_counter() - started) * 1000)
    return [statistics.median(taken[1:]) for taken in samples]


async def in_turns_blocking(rounds: int, *jobs: BlockingJob, idle_seconds: float = 0.0) -> list[float]:
    """Median milliseconds of each job, called from a thread without an event loop and after so long of doing nothing.

    The first round of each only warms up.
    """

    def measure() -> list[float]:
        samples: list[list[float]] = [[] for _ in jobs]
        for _ in range(rounds + 1):
            for job, taken in zip(jobs, samples, strict=True):
                time.sleep(idle_seconds)
                started = time.perf_counter()
                job()
                taken.append((time.perf_counter() - started) * 1000)
        return [statistics.median(taken[1:]) for taken in samples]

    return await to_thread.run_sync(measure)


def command(argv: Sequence[str], environment: dict[str, str] | None = None) -> Job:
    """Starting a program and waiting for it, with nothing around it that costs."""

    def run() -> None:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
        )
        _, said = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{argv[0]} ended with {process.returncode}: {said.decode(errors='replace')[-300:]}")

    return run


async def per_second(job: AsyncJob, count: int, at_once: int) -> float:
    limiter = anyio.CapacityLimiter(at_once)

    async def one() -> None:
        async with limiter:
            await job()

    started = time.perf_counter()
    async with anyio.create_task_group() as group:
        for _ in range(count):
            group.start_soon(one)
    return count / (time.perf_counter() - started)


def in_thread(argv: Sequence[str]) -> AsyncJob:
    """A program started from a worker thread, for measuring how many a machine can run."""

    async def run() -> None:
        await to_thread.run_sync(lambda: subprocess.run(argv, check=True, stdout=subprocess.DEVNULL))

    return run


def private_memory_mib(process: int) -> float:
    return memory_kib(process, "Private_Dirty:", "Private_Clean:") / 1024


def memory_kib(process: int, *kinds: str) -> int:
    try:
        with open(f"/proc/{process}/smaps_rollup", encoding="ascii") as stream:
            fields = [line.split() for line in stream]
    except OSError:  # it has ended
        return 0
    return sum(int(field[1]) for field in fields if field[0] in kinds)


def descendants(process: int) -> list[int]:
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit() and _parent(int(name)) == process:
            found += [int(name), *descendants(int(name))]
    return found


def _parent(process: int) -> int | None:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as stream:
            return int(stream.read().rpartition(")")[2].split()[1])
    except OSError:
        return None
