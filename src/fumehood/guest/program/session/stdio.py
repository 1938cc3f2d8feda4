"""Standard streams between runs: new input for each, output flushed after each, and streams again if one was closed."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO

from ..streams import text_stream

_NAMES = ("stdin", "stdout", "stderr")


def prepare(data: bytes) -> None:
    """Standard input holds this and then ends; children inherit it."""
    for descriptor in (1, 2):
        _keep_occupied(descriptor)
        _keep_usable(descriptor)
    source = _memory_file(data) if data else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    if source == 0:
        os.set_inheritable(0, True)
    else:
        os.dup2(source, 0)
        os.close(source)
    sys.stdin = sys.__stdin__ = text_stream(0, "<stdin>", "surrogateescape")  # type: ignore[misc]


def flush() -> None:
    """Flushes the output streams: everything that was written is in the pipes, or is lost."""
    for name in _NAMES[1:]:
        for stream in (getattr(sys, name, None), getattr(sys, f"__{name}__", None)):
            with suppress(Exception):
                if stream is not None:
                    stream.flush()


def _memory_file(data: bytes) -> int:
    descriptor = os.memfd_create("stdin", os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _keep_occupied(descriptor: int) -> None:
    """Else the next file that is opened would become standard output."""
    try:
        os.fstat(descriptor)
    except OSError:
        sink = os.open(os.devnull, os.O_WRONLY)
        if sink != descriptor:
            os.dup2(sink, descriptor)
            os.close(sink)


def _keep_usable(descriptor: int) -> None:
    """A stream that was replaced stays so; one that was closed or lost would make the session mute."""
    name = _NAMES[descriptor]
    if not _is_usable(getattr(sys, f"__{name}__", None)):
        errors = "surrogateescape" if descriptor == 1 else "backslashreplace"
        setattr(sys, f"__{name}__", text_stream(descriptor, f"<{name}>", errors))
    if not _is_usable(getattr(sys, name, None)):
        setattr(sys, name, getattr(sys, f"__{name}__"))


def _is_usable(stream: TextIO | None) -> bool:
    return stream is not None and not getattr(stream, "closed", False)
