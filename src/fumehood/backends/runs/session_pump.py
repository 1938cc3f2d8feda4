"""Moves the bytes of a session: what its runs write, and what the session itself has to say.

What comes over the conversation was written next to the user's code, perhaps by it. It decides what the result of a
run says, as exit codes and output do, and nothing else: time, memory and output are limited by the cell and by us.
"""

from __future__ import annotations

import socket
from contextlib import suppress

import anyio

from fumehood.backends.interface import Output
from fumehood.backends.runs.descriptors import RunDescriptors
from fumehood.backends.runs.pump import Pump
from fumehood.guest import frames
from fumehood.guest.session.bundle import MAX_DISPLAY_BYTES, decode_bundle
from fumehood.results import Display

_CHUNK_BYTES = 256 * 1024
# What a display costs us besides what is in it: ever so many empty ones are not free.
_DISPLAY_BYTES = 256


class SessionPump(Pump):
    """Also takes what the session itself has to say."""

    def __init__(self, descriptors: RunDescriptors, output_limit: int) -> None:
        super().__init__(descriptors, None, output_limit)
        self._limit = output_limit
        self._decoder = frames.Decoder(MAX_DISPLAY_BYTES)
        self.shell: str | None = None
        self.displays: list[Display] = []
        self.is_broken = False
        self.is_started = False
        self.done: frames.Header | None = None
        self.listen()

    def begin(self) -> None:
        """Of a run: it has the whole limit to itself."""
        self._room, self.output_exceeded = self._limit, False
        self.usage, self.done, self.is_started = None, None, False

    def _stop_excess(self) -> None:
        self.tell({"do": "allow", "seconds": 0})

    def _read_link(self, link: socket.socket) -> None:
        data = b""
        with suppress(OSError):
            data = link.recv(_CHUNK_BYTES)
        if not data:
            self._give_up(link)
            return
        try:
            self._decoder.feed(data)
            while (message := self._decoder.next()) is not None:
                self._take(*message)
        except frames.FrameError:
            self._give_up(link)

    def _give_up(self, link: socket.socket) -> None:
        """It has ended, or its program has closed or misused the link; the cell finds out and says which."""
        self.is_broken = True
        self._epoll.unregister(link)
        self._stop_excess()

    def _take(self, header: frames.Header, body: bytes) -> None:
        if "ready" in header:
            self.shell = str(header["ready"])
        elif "display" in header:
            size = len(body) + _DISPLAY_BYTES
            if self._charge(size) == size:
                self.displays.append(Display(*decode_bundle(header, body)))
        elif "started" in header:
            self.is_started = True
        elif "done" in header:
            self.done = header

    def take_rest(self) -> list[Output]:
        """What a run wrote before it said that it was done: a pipe holds no more than one of these."""
        outputs: list[Output] = []
        for descriptor in list(self._streams):
            outputs += self._read_stream(descriptor)
        return outputs

    def take_displays(self) -> list[Display]:
        taken, self.displays = self.displays, []
        return taken

    async def send(self, data: bytes) -> None:
        assert self._link is not None
        rest = memoryview(data)
        while rest and not self.is_answered:
            try:
                rest = rest[self._link.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._link)
            except OSError:
                return  # the answer says why
