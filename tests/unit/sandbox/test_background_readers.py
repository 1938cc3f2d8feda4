"""Several tasks at one background run, and the end of its sandbox."""

from __future__ import annotations

import anyio
import pytest

from fumehood import AsyncBackgroundRun, AsyncSandbox, Finished, Policy, Status

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("outputs", [[], ["**"]], ids=["closed", "outputs"])
async def test_a_sandbox_closes_while_other_tasks_read_a_run_and_wait_for_it(outputs: list[str]) -> None:
    ends: list[Status] = []

    async def read_all(run: AsyncBackgroundRun, is_reading: anyio.Event) -> None:
        async for event in run.stream():
            is_reading.set()
            if isinstance(event, Finished):
                ends.append(event.result.status)

    async with anyio.create_task_group() as tasks:
        async with AsyncSandbox(Policy(filesystem={"outputs": outputs})) as box:
            run, is_reading = await box.start("print('up', flush=True)\ninput()"), anyio.Event()
            tasks.start_soon(read_all, run, is_reading)
            await is_reading.wait()
            tasks.start_soon(read_all, run, is_reading)
        assert not box.is_open
    assert ends == [Status.CANCELLED] * 2
