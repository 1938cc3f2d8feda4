"""Whose cancellation it is: the runtime's, or one that a handler brought on itself."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import anyio


def is_being_cancelled(error: BaseException) -> bool:
    """Whether this error is the end of the runtime, and has to go on."""
    return isinstance(error, anyio.get_cancelled_exc_class()) and anyio.current_effective_deadline() == float("-inf")


async def shed_own_cancellation() -> None:
    """asyncio lets a handler cancel the task that it runs in, also with effect after it has returned."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        # Another event loop, where a task cannot be cancelled but by a scope around it.
        return
    if task is None or not task.cancelling() or anyio.current_effective_deadline() == float("-inf"):
        return
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    while task.cancelling():
        task.uncancel()
