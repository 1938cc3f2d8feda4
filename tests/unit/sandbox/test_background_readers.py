"""Several tasks at one background run, and the end of its sandbox."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from fumehood import AsyncSandbox, SandboxError

pytestmark = pytest.mark.anyio


async def test_a_sandbox_closes_while_other_tasks_read_a_run_and_wait_for_it() -> None:
    failures: list[str] = []

    async def read_all(run: Any, is_reading: anyio.Event) -> None:
        try:
            async for _ in run.stream():
                is_reading.set()
        except SandboxError as error:
            failures.append(str(error))

    async with anyio.create_task_group() as tasks:
        async with AsyncSandbox() as box:
            run, is_reading = await box.start("print('up', flush=True)\ninput()"), anyio.Event()
            tasks.start_soon(read_all, run, is_reading)
            await is_reading.wait()
            tasks.start_soon(read_all, run, is_reading)
        assert not box.is_open
    assert failures == ["the sandbox was closed while the run was under way"] * 2
