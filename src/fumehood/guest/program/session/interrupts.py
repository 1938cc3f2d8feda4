"""When an interrupt may strike: in the user's code, and nowhere else.

SIGINT has to raise KeyboardInterrupt in the user's code at any point, but must never tear our own: not between two
halves of a message, and not in the moment after a run in which it is still being wound up. Python calls a signal's
handler between any two instructions of the main thread and tells it which frame it has stopped. So ours looks at the
frame: the few functions here that open and close the gate are safe by that, without a moment in between. Blocking the
signal instead would not do: a thread of the user's takes it, and Python still calls the handler in the main thread.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from threading import get_ident
from types import FrameType
from typing import Any

# What programs usually handle. A handler of the user's may raise, so it is called while the user's code runs.
_HELD_BACK = {
    signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD, signal.SIGTERM,
    signal.SIGHUP,
}  # fmt: skip

Work = Callable[[], object]
Handler = Any


class InterruptGate:
    """Open while the user's code runs. Belongs to the main thread."""

    def __init__(self) -> None:
        self._thread = get_ident()
        self._is_open = False
        self._is_kept = False
        self._is_waiting = False
        self._divert: Callable[[FrameType], bool] | None = None
        self._handler: Handler = _make_handler(self._decide)
        self._users_handler: Handler = self._handler
        self._users_mask = signal.pthread_sigmask(signal.SIG_SETMASK, _HELD_BACK)
        # In the order in which they call each other; a second interrupt may strike while the first is decided on.
        self._safe = {
            function.__code__ for function in (InterruptGate.call, InterruptGate._decide, self._handler.__new__)
        }
        # For those who compare with it, as asyncio does, and for those who put it back.
        signal.default_int_handler = self._handler
        signal.signal(signal.SIGINT, self._handler)

    def expect(self) -> None:
        """From here on an interrupt is meant for the next call, even if that has not begun."""
        self._is_kept, self._is_waiting = True, False

    def call(self, work: Work, *, is_open: bool = True) -> BaseException | None:
        """Returns what it raised, whatever that is. With the gate closed an interrupt waits until it is opened."""
        ended: BaseException | None = None
        self._is_open = is_open
        try:
            self._enter(work)
        except BaseException as error:
            # Without the frame of this function, which would hold itself through its own variable.
            ended = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
        self._is_open = False
        try:
            self._leave()
        except BaseException as error:  # from a handler of the user's, too late for the user's code
            ended = ended or error
            self._leave()
        return ended

    def shielded(self, work: Work) -> None:
        """In the user's code: do this piece of ours whole; an interrupt strikes after it."""
        if get_ident() != self._thread or not self._is_open:
            work()
            return
        self.close(False)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
        try:
            work()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self.open()

    def open(self) -> bool:
        """Within a call: what follows is the user's code. Returns what `close` wants to know."""
        was_open = self._is_open
        # In this order, and the reverse below: at no moment is an interrupt neither raised nor kept.
        self._is_open = True
        self._is_kept = False
        self._strike_if_waiting()
        return was_open

    def close(self, was_open: bool) -> None:
        """Within a call: what follows is ours again, unless it was the user's already."""
        self._is_kept = not was_open
        self._is_open = was_open

    def diverted(self, divert: Callable[[FrameType], bool] | None) -> None:
        """Ask this function first: it may take an interrupt at some frame upon itself."""
        self._divert = divert

    def open_for_good(self) -> None:
        """At the end of the session: signals are the user's again."""
        signal.signal(signal.SIGINT, self._users_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._users_mask)

    def _enter(self, work: Work) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._users_mask)
        if self._users_handler is not self._handler:
            signal.signal(signal.SIGINT, self._users_handler)
        if self._is_open:
            self.open()
        work()

    def _leave(self) -> None:
        sys.settrace(None)
        sys.setprofile(None)
        self._users_mask = signal.pthread_sigmask(signal.SIG_SETMASK, _HELD_BACK)
        handler: Handler = signal.getsignal(signal.SIGINT)
        # Not from one run to the next: the default action, which ends the process, and what is not Python's.
        self._users_handler = self._handler if handler in (signal.SIG_DFL, None) else handler
        if handler is not self._handler:
            signal.signal(signal.SIGINT, self._handler)

    def _strike_if_waiting(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            raise KeyboardInterrupt

    def _decide(self, frame: FrameType) -> bool:
        if not self._is_open or frame.f_code in self._safe:
            self._is_waiting = self._is_waiting or self._is_kept
            return False
        return not (self._divert and self._divert(frame))


def _make_handler(decide: Callable[[FrameType], bool]) -> type:
    """A handler that raises without a frame of its own, which the user's tracebacks would show.

    Calling a class calls `__init__` if `__new__` gave an instance; that is the interpreter's own handler, in C.
    """

    class default_int_handler:
        def __new__(cls, number: int, frame: FrameType) -> object:
            return object.__new__(cls) if decide(frame) else None

        __init__ = signal.default_int_handler  # type: ignore[assignment]

    default_int_handler.__module__, default_int_handler.__qualname__ = "_signal", "default_int_handler"
    return default_int_handler
