"""The distributed trace that a piece of work belongs to, as W3C Trace Context writes it.

A server sets it for the work of a request; records of runs carry it as the id `trace`, and spans that are made of them
have it as their parent. https://www.w3.org/TR/trace-context/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

HEADER = "traceparent"
_FORMAT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)
_current: ContextVar[str | None] = ContextVar("fumehood_trace", default=None)


def check_trace(text: str) -> str | None:
    """The same text if it names a trace and a span; None if not, and then there is no trace: that is never an error."""
    return text if _FORMAT.fullmatch(text) else None


def current_trace() -> str | None:
    return _current.get()


@contextmanager
def within_trace(trace: str | None) -> Iterator[None]:
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)
