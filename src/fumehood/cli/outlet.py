"""Where a program's output goes: one of our own standard streams, byte for byte unless it is a terminal."""

from __future__ import annotations

import os
import select

from fumehood.cli.interruption import Interruption
from fumehood.cli.terminal import TerminalFilter
from fumehood.errors import SandboxError


class Outlet:
    """Unbuffered. A slow reader slows the program; a reader that went away raises BrokenPipeError."""

    def __init__(self, descriptor: int, interruption: Interruption) -> None:
        self._descriptor = descriptor
        self._interruption = interruption
        self._filter = TerminalFilter() if os.isatty(descriptor) else None

    def write(self, data: bytes) -> None:
        self._write_all(self._filter.feed(data) if self._filter else data)

    def finish(self) -> None:
        """Leave a terminal as it was, at the end or before a line of ours.

        What it does not take at once (it was stopped with Ctrl-S) it does not get.
        """
        if self._filter and _is_writable(self._descriptor, wait=False):
            os.write(self._descriptor, self._filter.finish())

    def _write_all(self, data: bytes) -> None:
        rest = memoryview(data)
        with self._interruption.ending_what_blocks():
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:
                    _is_writable(self._descriptor, wait=True)
                except BrokenPipeError:
                    raise
                except OSError as error:
                    raise SandboxError(f"the program's output cannot be written: {error.strerror}") from error


def _is_writable(descriptor: int, *, wait: bool) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(None if wait else 0))
