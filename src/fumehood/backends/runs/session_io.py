"""The input and output of a session: its runs' output, and the messages of the session itself.

The messages come from a process that also runs the user's code, which may have written them. They decide what the
result of a run contains, as exit codes and output do, and nothing else: the cell and the host limit time, memory and
output.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress

from fumehood.backends.interface import Output
from fumehood.backends.runs.descriptors import RunDescriptors
from fumehood.backends.runs.run_io import RunIO
from fumehood.backends.runs.watchdog import Watchdog
from fumehood.guest.contract import frames
from fumehood.guest.contract.bundle import MAX_DISPLAY_BYTES, MAX_DISPLAY_HEADER_BYTES, decode_bundle
from fumehood.guest.contract.limits import INTERRUPT_GRACE_SECONDS
from fumehood.results import Display

_CHUNK_BYTES = 256 * 1024
# What a display costs us besides what is in it: ever so many empty ones are not free.
_DISPLAY_BYTES = 256
# A value of a JSON text, in memory. Short ones take much more than their text.
_VALUE_BYTES = 32
# The session's own messages are shorter: that it is ready, and which run started and ended.
_WORD_BYTES = 512
# How long it may go on after its output limit. The guest ends it sooner; on a busy machine much is on its way by then.
_PATIENCE_SECONDS = 5 * INTERRUPT_GRACE_SECONDS
_DONE = {"done", "ended", "code", "exhausted"}


class _OverLimitError(Exception):
    """A value that would be larger than the output limit allows."""


class SessionIO(RunIO):
    """RunIO that also reads the messages of the session itself."""

    def __init__(self, descriptors: RunDescriptors, output_limit: int, *, is_direct: bool) -> None:
        super().__init__(descriptors, None, output_limit, is_direct=is_direct)
        self._limit = output_limit
        self._decoder = frames.Decoder(MAX_DISPLAY_BYTES, MAX_DISPLAY_HEADER_BYTES)
        self._run = 0
        self._is_charged = False
        self._ignores_until: float | None = None
        self.shell: str | None = None
        self.displays: list[Display] = []
        self.is_broken = False
        self.misuse = ""
        """How its program did not keep to the protocol, if it did not."""
        self.is_started = False
        self.done: frames.Header | None = None
        self.listen()

    def begin(self, run: int) -> None:
        """The next run, which has the whole output limit."""
        self._run, self._ignores_until = run, None
        self._room, self.output_exceeded = self._limit, False
        self.usage, self.done, self.is_started = None, None, False

    def _stop_excess(self) -> None:
        self.send({"do": "allow", "seconds": 0})

    def _read_link(self, link: socket.socket) -> None:
        data = b""
        with suppress(OSError):
            data = link.recv(_CHUNK_BYTES)
        if not data:
            self._give_up(link)
            return
        try:
            self._decoder.feed(data)
            while (size := self._decoder.announced()) is not None and self._take_next(size):
                pass
        except frames.FrameError as error:
            self.misuse = str(error)
            self._give_up(link)

    def _give_up(self, link: socket.socket) -> None:
        """It has ended, or its program has closed or misused the link; the cell finds out and says which."""
        self.is_broken = True
        self._watched().unregister(link)
        self._stop_excess()

    def _take_next(self, size: int) -> bool:
        """False when not all of it is here. Anything longer than a word is paid for before it is kept or parsed."""
        if size > _WORD_BYTES and not self._is_charged and not self._is_paid(size):
            self._ignore()
            self._decoder.skip()
            return True
        self._is_charged = size > _WORD_BYTES
        message = self._decoder.next_raw()
        if message is None:
            return False
        is_charged, self._is_charged = self._is_charged, False
        self._take(*message, is_charged=is_charged)
        return True

    def _is_paid(self, size: int) -> bool:
        cost = size + _DISPLAY_BYTES
        return not self.output_exceeded and self._charge(cost) == cost

    def _ignore(self) -> None:
        """What comes beyond the limit. A session that is about to be interrupted says more, but not for long."""
        now = time.monotonic()
        if self._ignores_until is None:
            self._ignores_until = now + _PATIENCE_SECONDS
        if now > self._ignores_until:
            raise frames.FrameError("it went on sending displays after its output limit")

    def _take(self, text: bytes, body: bytes, *, is_charged: bool) -> None:
        if is_charged and not self._is_within(text):
            self._ignore()
            return
        header = frames.parse(text)
        if header.keys() == {"display", "metadata"}:
            if is_charged or self._is_paid(len(text) + len(body)):
                self._show(header, body)
            else:
                self._ignore()
        elif body or is_charged or not self._is_expected(header):
            raise frames.FrameError(f"a message that is not expected: {', '.join(header)[:100]!r}")

    def _show(self, header: frames.Header, body: bytes) -> None:
        with suppress(_OverLimitError):
            self.displays.append(Display(*decode_bundle(header, body, self._admit)))

    def _admit(self, text: bytes) -> None:
        if not self._is_within(text):
            raise _OverLimitError

    def _is_within(self, text: bytes) -> bool:
        """Pays for the values of a JSON text as far as they take more memory than the text has bytes."""
        values = text.count(b",") + text.count(b"{") + text.count(b"[")
        more = max(0, values * _VALUE_BYTES - len(text))
        return self._charge(more) == more

    def _is_expected(self, header: frames.Header) -> bool:
        """Takes it, if the session itself has to say this now."""
        if header.keys() == {"ready"} and self.shell is None:
            self.shell = str(header["ready"])
        elif header == {"started": self._run} and not self.is_started:
            self.is_started = True
        elif header.keys() == _DONE and header["done"] == self._run and self.is_started and self.done is None:
            self.done = header
        else:
            return False
        return True

    def take_rest(self) -> list[Output]:
        """What a run wrote before it said that it was done: a pipe holds no more than one of these."""
        outputs: list[Output] = []
        for descriptor in list(self._streams):
            outputs += self._read_stream(descriptor)
        return outputs

    def take_displays(self) -> list[Display]:
        taken, self.displays = self.displays, []
        return taken

    async def send_frame(self, data: bytes, watchdog: Watchdog) -> None:
        assert self._link is not None
        rest = memoryview(data)
        while rest and not self.is_answered:
            try:
                rest = rest[self._link.send(rest) :]
            except BlockingIOError:
                await watchdog.wait_writable(self._link.fileno())
            except OSError:
                return  # the answer says why
