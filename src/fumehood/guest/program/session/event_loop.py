"""Top-level `await`: one event loop for the whole session, and interrupts that leave it whole."""

from __future__ import annotations

import importlib
import sys
from types import CoroutineType, FrameType, TracebackType
from typing import Any, TypeVar

from .interrupts import InterruptGate

_PATIENCE_SECONDS = 1.0

T = TypeVar("T", bound=BaseException | None)


class EventLoop:
    """Made when it is first needed; runs only while a run awaits something."""

    def __init__(self, gate: InterruptGate) -> None:
        self._gate = gate
        self._loop: Any = None
        self._was_interrupted = False
        self._folders = list(sys.path)

    def run(self, coroutine: CoroutineType[Any, Any, object]) -> object:
        asyncio = self._asyncio()
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(coroutine)
        self._was_interrupted = False
        self._gate.diverted(self._cancel_instead)
        try:
            return self._loop.run_until_complete(self._task)
        except asyncio.CancelledError as error:
            error.__traceback__ = _below(coroutine, error)
            raise self.interruption_of(error) from None
        except BaseException as error:
            error.__traceback__ = _below(coroutine, error)
            raise
        finally:
            self._gate.diverted(None)
            if not self._task.done():
                self._wind_up(asyncio.wait)

    def _asyncio(self) -> Any:
        """It costs more than most sessions' whole start, and many never need it. Not from the user's own folders."""
        theirs, sys.path = sys.path, self._folders
        try:
            return importlib.import_module("asyncio")
        finally:
            sys.path = theirs

    def _wind_up(self, wait: Any) -> None:
        """Left by an exception from elsewhere. What was awaited has a moment to end, and not to end in a later run."""
        self._task.cancel()
        self._loop.run_until_complete(wait([self._task], timeout=_PATIENCE_SECONDS))

    def interruption_of(self, error: T) -> T | KeyboardInterrupt:
        """What was cancelled because of an interrupt ended by an interrupt."""
        asyncio = sys.modules.get("asyncio")
        if not self._was_interrupted or error is None or asyncio is None:
            return error
        if not isinstance(error, asyncio.CancelledError):
            return error
        return KeyboardInterrupt().with_traceback(error.__traceback__)

    def _cancel_instead(self, frame: FrameType) -> bool:
        """An exception between two callbacks would lose one for ever; there, cancel the task and wake the loop."""
        if _is_in_callback(frame):
            return False
        self._was_interrupted = True
        self._task.cancel()
        self._loop.call_soon_threadsafe(_do_nothing)
        return True


def _below(coroutine: CoroutineType[Any, Any, object], error: BaseException) -> TracebackType | None:
    """The traceback without the loop's own frames, if the error comes out of the coroutine."""
    entry = error.__traceback__
    while entry is not None and entry.tb_frame.f_code is not coroutine.cr_code:
        entry = entry.tb_next
    return entry or error.__traceback__


def _is_in_callback(frame: FrameType | None) -> bool:
    run = sys.modules["asyncio"].Handle._run.__code__
    while frame is not None and frame.f_back is not None:
        if frame.f_back.f_code is run:
            return True
        frame = frame.f_back
    return False


def _do_nothing() -> None:
    pass
