"""Standard input of a program: from data, or from a descriptor of the caller, which is read here and not passed in."""

from __future__ import annotations

import os
import select
from contextlib import suppress

_CHUNK_BYTES = 64 * 1024


class StdinWriter:
    """Writes as the program reads, and reads the source only when everything before is written."""

    def __init__(self, pipe: int, source: bytes | int) -> None:
        self._pipe: int | None = pipe
        self._pending = memoryview(source if isinstance(source, bytes) else b"")
        self._source = source if isinstance(source, int) else None
        self._source_can_wait = False

    def start(self, epoll: select.epoll) -> None:
        self._epoll = epoll
        if self._source is not None:
            try:
                epoll.register(self._source, select.EPOLLIN)
                self._source_can_wait = True
            except PermissionError:
                pass  # a regular file: always readable
        if self._source_can_wait:
            return
        assert self._pipe is not None
        epoll.register(self._pipe, select.EPOLLOUT)

    def step(self, descriptor: int) -> None:
        if descriptor == self._source:
            self._read()
        elif descriptor == self._pipe:
            self._write(descriptor)

    def _read(self) -> None:
        assert self._source is not None
        try:
            data = os.read(self._source, _CHUNK_BYTES)
        except OSError:
            data = b""  # not open for reading, or its terminal is gone: there is nothing to read
        if self._source_can_wait:
            self._epoll.unregister(self._source)
        if not data or self._pipe is None:
            self.close()
            return
        self._pending = memoryview(data)
        if self._source_can_wait:
            self._epoll.register(self._pipe, select.EPOLLOUT)

    def _write(self, pipe: int) -> None:
        if not self._pending and self._source is not None and not self._source_can_wait:
            self._read()
        if not self._pending:
            self.close()
            return
        try:
            self._pending = self._pending[os.write(pipe, self._pending[:_CHUNK_BYTES]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.close()
            return
        if not self._pending and self._source_can_wait and self._source is not None:
            self._epoll.unregister(pipe)
            self._epoll.register(self._source, select.EPOLLIN)

    def close(self) -> None:
        """The program sees the end of its input."""
        if self._pipe is None:
            return
        for descriptor in (self._pipe, self._source):
            if descriptor is not None:
                with suppress(OSError, ValueError):
                    self._epoll.unregister(descriptor)
        os.close(self._pipe)
        self._pipe = None
