"""Runs in the background that several tasks have to do with."""

from __future__ import annotations

import anyio
import pytest

from fumehood import AsyncBackgroundRun, AsyncSandbox, Status
from fumehood.audit.log import AuditLog
from fumehood.audit.store import Query

pytestmark = pytest.mark.anyio


async def test_a_sandbox_that_closes_ends_runs_that_tasks_wait_for_and_records_each_end_once(audit_folder: str) -> None:
    results: list[Status] = []

    async def wait(run: AsyncBackgroundRun) -> None:
        results.append((await run.wait()).status)

    async with anyio.create_task_group() as tasks, AsyncSandbox() as box:
        run = await box.start("import threading\nprint('up', flush=True)\nthreading.Event().wait()")
        sandbox = box.trail.ids["sandbox"]
        while not (await run.read(wait=10)).stdout:
            pass
        for _ in range(2):
            tasks.start_soon(wait, run)
    assert results == [Status.CANCELLED] * 2
    assert len(list(AuditLog.at(audit_folder).find(Query(kind="run.finished", sandbox_id=sandbox)))) == 1
