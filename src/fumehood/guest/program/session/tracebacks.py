"""Tracebacks without our own frames, and errors shown as the interpreter shows them."""

from __future__ import annotations

import os
import sys
import traceback
from types import FrameType, TracebackType

from .. import shutdown

_OUR_FOLDER = os.path.dirname(os.path.dirname(__file__)) + "/"


def hide_our_frames(error: BaseException) -> None:
    """In the error and in those that led to it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = _without_ours(current.__traceback__)
        waiting += [current.__cause__, current.__context__]


def _without_ours(entry: TracebackType | None) -> TracebackType | None:
    theirs: list[TracebackType] = []
    while entry is not None:
        if not _is_ours(entry.tb_frame):
            theirs.append(entry)
        entry = entry.tb_next
    for number, current in enumerate(theirs):
        current.tb_next = theirs[number + 1] if number + 1 < len(theirs) else None
    return theirs[0] if theirs else None


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_OUR_FOLDER)


def show(error: BaseException) -> None:
    """Shows an error with the program's hook. Before Python 3.13 the default hook does not find a run's source."""
    hide_our_frames(error)
    if getattr(sys, "excepthook", None) is sys.__excepthook__:
        shutdown.write_error("".join(traceback.format_exception(error)))
    else:
        shutdown.call_excepthook(error)


def show_briefly(error: BaseException) -> None:
    """Where even showing it has failed, for lack of memory or of patience."""
    try:
        os.write(2, f"{type(error).__name__}\n".encode("utf-8", "replace"))
    except OSError:
        return
