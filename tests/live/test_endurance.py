"""Very many runs in one process: nothing grows."""

from __future__ import annotations

import gc
import os

import anyio
import pytest
import sampling
from live.traces import Footprint, cells_of, children_of, mounts, private_kib, wait_until

from fumehood import AsyncSandbox, Policy, StepFailedError

RUNS, AT_ONCE = sampling.amount(500, whole=2000), 20
# SQLite keeps 2 MiB of the audit log's pages; what grows after that does not stop.
UNTIL_CACHES_ARE_FULL = 1000
ALLOWED_GROWTH_KIB = 2048
# An engine of other tests' may be at work beside us, and its helpers are our descendants too.
SECONDS_TO_SETTLE = 30.0


POLICY = Policy(resources={"memory": "201M"})


async def run_many(count: int) -> None:
    async def one() -> None:
        async with AsyncSandbox(POLICY) as box:
            assert (await box.run("print(1)", stdin=b"x")).stdout == "1\n"

    for _ in range(count // AT_ONCE):
        async with anyio.create_task_group() as tasks:
            for _ in range(AT_ONCE):
                tasks.start_soon(one)


@pytest.mark.serial
@pytest.mark.anyio
async def test_very_many_runs_leave_everything_as_it_was() -> None:
    others = set(cells_of(os.getpid()))
    async with AsyncSandbox(POLICY) as box:
        await box.run("pass")
        (outer,) = set(cells_of(os.getpid())) - others
        (cell,) = children_of(outer)
        await run_many(UNTIL_CACHES_ARE_FULL)
        gc.collect()
        before, host_kib, cell_kib = Footprint.at_rest(), private_kib(os.getpid()), private_kib(cell)
        cell_descriptors = len(os.listdir(f"/proc/{cell}/fd"))
        cell_mounts = len(mounts(cell))
        await run_many(RUNS)
        gc.collect()
        before.wait_until_it_is_so_again(SECONDS_TO_SETTLE)
        assert children_of(outer) == [cell]
        assert private_kib(os.getpid()) - host_kib < ALLOWED_GROWTH_KIB
        assert private_kib(cell) - cell_kib < ALLOWED_GROWTH_KIB
        wait_until(
            lambda: len(os.listdir(f"/proc/{cell}/fd")) <= cell_descriptors, SECONDS_TO_SETTLE, "its descriptors"
        )
        assert len(mounts(cell)) <= cell_mounts


@pytest.mark.serial
@pytest.mark.anyio
async def test_failures_of_every_kind_leave_everything_as_it_was() -> None:
    programs = ["1 / 0", "import os; os.abort()", "x = bytearray(10 ** 10)", "while True: print('x' * 100)", "def"]
    async with AsyncSandbox() as box:
        for program in programs:
            await box.run(program)
        before = Footprint.at_rest()
        for program in programs * sampling.amount(4, whole=10):
            assert not (await box.run(program)).ok
        before.wait_until_it_is_so_again(SECONDS_TO_SETTLE)


@pytest.mark.serial
@pytest.mark.anyio
async def test_sandboxes_that_cannot_open_leave_everything_as_it_was() -> None:
    broken = Policy(environment={"preload": ["no_such_module"]})
    async with AsyncSandbox() as box:
        await box.run("pass")
        for n in range(12):
            if n == 2:
                before = Footprint.at_rest()
            with pytest.raises(StepFailedError, match="no_such_module"):
                await AsyncSandbox(broken).__aenter__()
        before.wait_until_it_is_so_again(SECONDS_TO_SETTLE)
