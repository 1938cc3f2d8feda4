"""Work in threads: one whose result is released even if the waiting task is cancelled, and work beside a task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

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


class SideThread:
    """`with`: a thread in which calls are made one after another while the caller goes on.

    Leaving the block waits for the call under way, even if the task is cancelled; those that have not begun never do.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def begin(self, call: Callable[[], T]) -> Callable[[], Awaitable[T]]:
        """What is returned waits for the result."""
        future = self._pool.submit(call)

        async def result() -> T:
            return await anyio.to_thread.run_sync(lambda: future.result())

        return result
