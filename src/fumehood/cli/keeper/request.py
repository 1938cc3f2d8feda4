"""What a client asks for, with the descriptors that came with it."""

from __future__ import annotations

import os
from typing import NamedTuple, Self

# More than the kernel lets a program be started with.
_MOST_BYTES = 64 * 1024 * 1024


class Request(NamedTuple):
    arguments: list[str]
    environment: dict[bytes, bytes]
    mask: int
    folder: int
    streams: tuple[int, int, int]

    @classmethod
    def read(cls, descriptors: list[int]) -> Self:
        """ValueError for what no client of ours sends."""
        text, folder, *streams = descriptors
        stdin, stdout, stderr = streams
        mask, count, *words = _content(text).split(b"\0")
        arguments, variables = words[: int(count)], words[int(count) :]
        pairs = (variable.partition(b"=") for variable in variables)
        environment = {name: value for name, _, value in pairs}
        return cls(list(map(os.fsdecode, arguments)), environment, int(mask, 8), folder, (stdin, stdout, stderr))


def _content(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    if size > _MOST_BYTES:
        raise ValueError(f"a request of {size} bytes")
    return os.pread(descriptor, size, 0)
