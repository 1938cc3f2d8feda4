"""The event loop of a backend, in a thread of its own, which callers of any thread and any event loop share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import anyio
import anyio.to_thread

from fumehood.concurrency.portal import LoopThread


class BackendLoop:
    """Starts when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None

    def portal(self) -> Any:
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread()
                self._thread.__enter__()
            return self._thread.portal

    async def call(self, work: Callable[[], Any], dispose: Callable[[Any], None] | None = None) -> Any:
        """Runs `work` in it, while the caller's loop goes on. A result after cancellation goes to `dispose`, there."""
        portal = await anyio.to_thread.run_sync(self.portal)
        future: Future[Any] = portal.start_task_soon(work)
        try:
            return await anyio.to_thread.run_sync(future.result, abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            future.cancel()
            if dispose:
                future.add_done_callback(lambda done: _dispose(done, dispose))
            raise

    def close(self, wind_up: Callable[[], Any]) -> None:
        """`wind_up` is the last that runs in it."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.portal.call(wind_up)
            thread.__exit__(None, None, None)


def _dispose(done: Future[Any], dispose: Callable[[Any], None]) -> None:
    if not done.cancelled() and done.exception() is None:
        dispose(done.result())
