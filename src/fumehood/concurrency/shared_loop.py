"""The event loop of the blocking API: one for a process, in a daemon thread that the first call starts.

A call costs one wake-up of the thread and one of the caller. Nothing runs in the loop between calls, and no worker
thread outlives the call that needed it: an application that has closed its sandboxes has one idle thread, no more.
"""

from __future__ import annotations

import asyncio
import atexit
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import Future, wait
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Generic, TypeVar

import anyio

from fumehood.concurrency.process import ProcessKey, process_key
from fumehood.errors import UsageError

T = TypeVar("T")

_STOP_SECONDS = 1.0


class SharedLoop:
    """`call` is safe from any thread, also inside of a running event loop, which is blocked meanwhile."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="fumehood", daemon=True)
        self._process = process_key()
        self._under_way: set[_Call[Any]] = set()
        self._streams: set[AsyncGenerator[Any, None]] = set()

    def begin(self) -> None:
        """Starts the thread."""
        try:
            self._thread.start()
        except RuntimeError:  # no more threads
            self._loop.close()
            raise

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Runs an async function to its end.

        An exception of the waiting thread, such as KeyboardInterrupt, cancels the function, and its clean-up is waited
        for; a second one does not wait.
        """
        if threading.get_ident() == self._thread.ident:
            raise UsageError("the blocking API cannot be used inside of its own event loop; use AsyncSandbox there")
        call = self._make_call(function)
        self._under_way.add(call)
        try:
            self._loop.call_soon_threadsafe(call.start, context=_context())
            return call.result.result()
        except BaseException:
            if not call.result.done():
                call.result.cancel()
                wait([call.result])
            raise
        finally:
            self._under_way.discard(call)

    def start(self, function: Callable[[], Awaitable[T]]) -> Future[T]:
        """Starts an async function; cancelling its future cancels it."""
        call = self._make_call(function)
        self._loop.call_soon_threadsafe(call.start, context=_context())
        return call.result

    def iterate(self, stream: AsyncGenerator[T, None]) -> Iterator[T]:
        """What the stream yields. Leaving the iteration closes the stream, and the thread that iterated waits for that.

        An iteration that was dropped may be collected in any thread, also in one that the closing has to wait for. The
        stream is kept here, so that it is not collected with it, in any order and by several at once.
        """
        thread = threading.get_ident()
        self._streams.add(stream)
        try:
            while True:
                try:
                    yield self.call(stream.__anext__)
                except StopAsyncIteration:
                    return
                thread = threading.get_ident()
        finally:
            (self.call if thread == threading.get_ident() else self.start)(partial(self._close, stream))

    async def _close(self, stream: AsyncGenerator[Any, None]) -> None:
        try:
            await stream.aclose()
        finally:
            self._streams.discard(stream)

    def _make_call(self, function: Callable[[], Awaitable[T]]) -> _Call[T]:
        if process_key() != self._process:
            raise UsageError("the sandbox belongs to the process that opened it; open another one after a fork")
        return _Call(function, self._loop)

    def stop(self) -> None:
        """Ends the thread, unless others still wait for it: they end with the process."""
        if not self._under_way:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_STOP_SECONDS)

    def _serve(self) -> None:
        # Not `asyncio.run`: a task for as long as the thread lives would keep worker threads as long.
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()


class _Call(Generic[T]):
    """One function in the loop; another thread waits for its result."""

    def __init__(self, function: Callable[[], Awaitable[T]], loop: asyncio.AbstractEventLoop) -> None:
        self._function, self._loop = function, loop
        self._task: asyncio.Task[None] | None = None
        self._scope: anyio.CancelScope | None = None
        self.result: Future[T] = Future()
        self.result.add_done_callback(self._pass_cancellation)

    def start(self) -> None:
        self._task = self._loop.create_task(self._run())

    def _pass_cancellation(self, result: Future[T]) -> None:
        if result.cancelled():
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._scope is not None:
            self._scope.cancel()
        elif self._task is None:  # the caller was interrupted before it could ask for the start
            self.result.set_running_or_notify_cancel()

    async def _run(self) -> None:
        try:
            with anyio.CancelScope() as self._scope:
                if self.result.cancelled():
                    self._scope.cancel()
                result = await self._function()
                if self.result.set_running_or_notify_cancel():
                    self.result.set_result(result)
                return
        except BaseException as error:
            if self.result.set_running_or_notify_cancel():
                self.result.set_exception(error)
        else:
            self.result.set_running_or_notify_cancel()


def _context() -> Context:
    """The caller's variables, but for the kind of event loop that the caller may be inside of."""
    context = copy_context()
    if sniffio := sys.modules.get("sniffio"):
        context.run(sniffio.current_async_library_cvar.set, None)
    return context


_loops: dict[ProcessKey, SharedLoop] = {}
"""One for each process: threads do not survive a fork."""


def shared_loop() -> SharedLoop:
    process = process_key()
    if process not in _loops:
        made = SharedLoop()
        made.begin()
        if _loops.setdefault(process, made) is made:
            atexit.register(_stop, process)
        else:
            made.stop()  # another thread was quicker
    return _loops[process]


def _stop(process: ProcessKey) -> None:
    if process_key() == process:
        _loops.pop(process).stop()
