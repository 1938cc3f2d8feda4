"""Work in a worker thread whose result is released even if the waiting task is cancelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")


async def run_whole(work: Callable[[], T], undo: Callable[[T], object]) -> T:
    """Runs `work` to its end in a thread, and calls `undo` with its result if the caller was cancelled.

    No shield of anyio's holds asyncio's own way of cancelling off (`task.cancel`, `asyncio.timeout`, leaving a
    stream): a thread would go on, and its result would be lost. A task group waits for it.
    """
    results: list[T] = []
    errors: list[Exception] = []

    async def do() -> None:
        try:
            results.append(await anyio.to_thread.run_sync(work))
        except Exception as error:
            errors.append(error)

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(do)
    except BaseException:
        with anyio.CancelScope(shield=True):
            for result in results:
                await anyio.to_thread.run_sync(undo, result)
        raise
    if errors:
        raise errors[0]
    return results[0]
