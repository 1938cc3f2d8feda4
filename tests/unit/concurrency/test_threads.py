"""What a thread has made is known to somebody, or undone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import anyio
import anyio.to_thread
import pytest

from fumehood.concurrency.threads import run_whole

pytestmark = pytest.mark.anyio


class Maker:
    """Takes its time, and remembers what of its work is still there."""

    def __init__(self, error: Exception | None = None) -> None:
        self.has_begun, self.may_end, self.made = threading.Event(), threading.Event(), list[str]()
        self._error = error

    def make(self) -> str:
        self.has_begun.set()
        assert self.may_end.wait(10)
        if self._error:
            raise self._error
        self.made.append("it")
        return "it"


async def by_asyncio(task: asyncio.Task[str], scope: anyio.CancelScope) -> None:
    task.cancel()


async def by_anyio(task: asyncio.Task[str], scope: anyio.CancelScope) -> None:
    scope.cancel()


@pytest.mark.parametrize("cancel", [by_asyncio, by_anyio])
@pytest.mark.parametrize("error", [None, ValueError("no")])
async def test_who_is_cancelled_leaves_nothing(cancel: Callable[..., object], error: Exception | None) -> None:
    maker, scope = Maker(error), anyio.CancelScope()

    async def wait() -> str:
        with scope:
            return await run_whole(maker.make, maker.made.remove)
        raise asyncio.CancelledError

    task = asyncio.create_task(wait())
    await anyio.to_thread.run_sync(maker.has_begun.wait, 10)
    await cancel(task, scope)  # type: ignore[misc]
    asyncio.get_running_loop().call_later(0.05, maker.may_end.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert maker.may_end.is_set()
    assert maker.made == []


async def test_a_result_and_an_error_are_handed_on_as_they_are() -> None:
    good, bad = Maker(), Maker(ValueError("no"))
    good.may_end.set()
    bad.may_end.set()
    assert await run_whole(good.make, good.made.remove) == "it"
    assert good.made == ["it"]
    with pytest.raises(ValueError, match="no"):
        await run_whole(bad.make, bad.made.remove)
