"""Where a program's output goes: one of our own standard streams, byte for byte unless it is a terminal."""

from __future__ import annotations

import os
import select

import anyio

from fumehood.cli.interruption import Interruption
from fumehood.cli.terminal import TerminalFilter
from fumehood.errors import SandboxError

# A pipe that poll calls writable takes so much without blocking (PIPE_BUF).
_CHUNK_BYTES = 4096


class Outlet:
    """Unbuffered. A slow reader slows the program; a reader that went away raises BrokenPipeError."""

    def __init__(self, descriptor: int, interruption: Interruption) -> None:
        self._descriptor = descriptor
        self._interruption = interruption
        self._filter = TerminalFilter() if os.isatty(descriptor) else None

    async def write(self, data: bytes) -> None:
        rest = memoryview(self._filter.feed(data) if self._filter else data)
        while rest:
            if not _is_writable(self._descriptor):
                await anyio.wait_writable(self._descriptor)
            rest = rest[self._write_some(rest[:_CHUNK_BYTES]) :]

    def finish(self) -> None:
        """Leave a terminal as it was, at the end or before a line of ours.

        What it does not take at once (it was stopped with Ctrl-S) it does not get.
        """
        if self._filter and _is_writable(self._descriptor):
            os.write(self._descriptor, self._filter.finish())

    def _write_some(self, data: memoryview) -> int:
        with self._interruption.ending_what_blocks():
            try:
                return os.write(self._descriptor, data)
            except BlockingIOError:
                return 0
            except BrokenPipeError:
                raise
            except OSError as error:
                raise SandboxError(f"the program's output cannot be written: {error.strerror}") from error


def _is_writable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))
