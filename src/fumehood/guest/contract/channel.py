"""One conversation on a shared stream, at one of its two ends."""

from __future__ import annotations

import os
import socket
import stat
from collections import deque
from contextlib import suppress

# How much may be under way in one direction. A reader that is slower than this makes the writer wait.
WINDOW_BYTES = 256 * 1024


class Channel:
    """What is read from `source` travels; what arrives is written to `sink`. Either may be missing, or closed later."""

    def __init__(self, number: int, source: int | None, sink: int | None, leaders: tuple[Channel, ...] = ()) -> None:
        self.number, self.source, self.sink = number, source, sink
        self.leaders = leaders
        """What these carry must be there first, in either direction."""
        self.credit = WINDOW_BYTES
        """How much we may still send before the other end has to say that it is ready for more."""
        self.pending: deque[memoryview] = deque()
        """Arrived, and not written yet."""
        self.pending_bytes = 0
        self.delivered_bytes = 0
        """Written, and the other end has not been told."""
        self.rest_bytes: int | None = None
        """How much more is to be read from `source`, once that is known."""
        self.is_ended = False
        """Nothing more arrives."""
        for descriptor in (source, sink):
            if descriptor is not None:
                os.set_blocking(descriptor, False)

    def close_source(self) -> None:
        if self.source is not None:
            _shut(self.source, socket.SHUT_RD)
            os.close(self.source)
            self.source = None

    def close_sink(self) -> None:
        """Closes the sink: its reader sees the end."""
        if self.sink is not None:
            _shut(self.sink, socket.SHUT_WR)
            os.close(self.sink)
            self.sink = None
        self.pending.clear()
        self.pending_bytes = 0


def _shut(descriptor: int, how: int) -> None:
    """Shuts down one direction of a socket, which is open twice here: closing one copy would not reach the peer."""
    if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        with socket.socket(fileno=os.dup(descriptor)) as line, suppress(OSError):
            line.shutdown(how)
