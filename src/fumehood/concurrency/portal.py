"""An event loop in a thread of its own, for callers that have none, or are inside of one that they may not block."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Self, TypeVar

import anyio
from anyio.from_thread import BlockingPortal

T = TypeVar("T")


class LoopThread:
    """A daemon thread: an application that forgets to close it can still end."""

    def __init__(self) -> None:
        self._started: Future[BlockingPortal] = Future()
        self._thread = threading.Thread(target=self._run, name="fumehood", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.portal = self._started.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.portal.call(self.portal.stop)
        self._thread.join()

    def _run(self) -> None:
        try:
            anyio.run(self._serve)
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            raise

    async def _serve(self) -> None:
        async with BlockingPortal() as portal:
            self._started.set_result(portal)
            await portal.sleep_until_stopped()


def run_blocking(function: Callable[[], Awaitable[T]]) -> T:
    """Run an async function to its end, also from inside of a running event loop, which is blocked meanwhile.

    An exception of the waiting thread, such as KeyboardInterrupt, cancels the function; its clean-up is waited for.
    """
    with LoopThread() as loop:
        future = loop.portal.start_task_soon(function)
        try:
            return future.result()
        finally:
            future.cancel()
