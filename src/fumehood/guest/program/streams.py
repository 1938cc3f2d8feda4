"""Standard streams of a Python program, made anew around the descriptors that it was given."""

from __future__ import annotations

import io


def open_streams() -> tuple[io.TextIOWrapper, io.TextIOWrapper, io.TextIOWrapper]:
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
