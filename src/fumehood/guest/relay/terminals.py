"""The size of a run's terminal, which the host changes when its own window changes."""

from __future__ import annotations

import fcntl
import struct
import termios
from contextlib import suppress

from ..contract.frames import Header
from ..contract.multiplexer import Multiplexer


def resize(channels: Multiplexer, header: Header) -> None:
    descriptor = channels.sink_of(header["channel"])
    if descriptor is not None:
        with suppress(OSError):  # it has just been closed
            fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", header["rows"], header["columns"], 0, 0))
