"""Standard streams of a Python program, made anew around the descriptors that it was given."""

from __future__ import annotations

import io
import os

Streams = tuple[io.TextIOWrapper, io.TextIOWrapper, io.TextIOWrapper]
_NUMBERS = (0, 1, 2)


def usual_streams() -> Streams:
    """Those of a program without input whose output goes into pipes: made ahead, since all of them are alike.

    A stream remembers of its descriptor whether there are positions in it, and its number.
    """
    read, write = os.pipe2(os.O_CLOEXEC)
    usual = (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), write, write)
    ours = [os.dup(number) for number in _NUMBERS]
    try:
        for number, descriptor in zip(_NUMBERS, usual, strict=True):
            os.dup2(descriptor, number)
        return open_streams()
    finally:
        for number, descriptor in zip(_NUMBERS, ours, strict=True):
            os.dup2(descriptor, number)
        for descriptor in (read, *usual[:2], *ours):
            os.close(descriptor)


def open_streams() -> Streams:
    """Standard streams as under `python -u`: what is written is sent, in order with what child processes write."""
    return (
        text_stream(0, "<stdin>", "surrogateescape"),
        text_stream(1, "<stdout>", "surrogateescape"),
        text_stream(2, "<stderr>", "backslashreplace"),
    )


def text_stream(descriptor: int, name: str, errors: str) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, "w" if descriptor else "r", closefd=False)
    raw.name = name
    buffer = raw if descriptor else io.BufferedReader(raw)
    stream = io.TextIOWrapper(buffer, "utf-8", errors, write_through=descriptor > 0)  # type: ignore[arg-type]
    setattr(stream, "mode", "w" if descriptor else "r")  # noqa: B010 - the type says it is read-only, and is wrong
    return stream
