"""The host's end of a conversation with a service inside a sandbox, on a stream socket. Any backend can use it.

What comes from inside is not to be trusted: the size of a message is bounded before any of it is kept.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import anyio

from fumehood.errors import SandboxError
from fumehood.guest.contract import frames
from fumehood.policy import format_duration

_CHUNK_BYTES = 256 * 1024
_MAX_HEADER_BYTES = 64 * 1024
PATIENCE_SECONDS = 31.0


class SocketConversation:
    """Owns the socket. Exclusive: one exchange at a time."""

    def __init__(
        self, stream: socket.socket, *, service: str = "file service", patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        """`patience_seconds` is how long the service may take for one message, in either direction."""
        stream.setblocking(False)
        self._service = service
        self._stream = stream
        self._decoder = frames.Decoder(max_header_bytes=_MAX_HEADER_BYTES)
        self._patience_seconds = patience_seconds
        self.is_abandoned = False
        self.is_silent = False
        """Whether it was abandoned because the service took longer than that."""

    async def send(self, header: Mapping[str, Any], body: bytes | memoryview = b"") -> None:
        """Most messages go out at once, and need no clock."""
        head = frames.encode_head(dict(header), len(body))
        rests = self._send_now([memoryview(head), memoryview(body)])
        if rests:
            with self._in_time():
                while rests:
                    await anyio.wait_writable(self._stream)
                    rests = self._send_now(rests)

    def _send_now(self, rests: list[memoryview]) -> list[memoryview]:
        """What is left to send."""
        try:
            return _without(rests, self._stream.sendmsg(rests))
        except BlockingIOError:
            return rests
        except OSError as error:
            raise self._broken("is gone; try again, or open a new sandbox") from error

    async def receive(self) -> tuple[dict[str, Any], bytes]:
        """Of many messages that were asked for together, most are there already, and need no clock."""
        message = self._receive_now()
        if message is None:
            with self._in_time():
                while message is None:
                    await anyio.wait_readable(self._stream)
                    message = self._receive_now()
        assert message is not None, "left without a message"
        return message

    def _receive_now(self) -> tuple[dict[str, Any], bytes] | None:
        """The next message, if it can be had without waiting."""
        try:
            while (message := self._decoder.next()) is None:
                self._decoder.feed(self._receive_some())
        except BlockingIOError:
            return None
        except frames.FrameError as error:
            raise self._broken(f"broke the protocol: {error}") from error
        return message

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        try:
            with anyio.fail_after(self._patience_seconds):
                yield
        except TimeoutError as error:
            self.is_silent = True
            seconds = format_duration(self._patience_seconds)
            raise self._broken(f"did not answer in {seconds}; try again, or open a new sandbox") from error

    def _receive_some(self) -> bytes:
        """Raises BlockingIOError if nothing is there."""
        try:
            data = self._stream.recv(_CHUNK_BYTES)
        except BlockingIOError:
            raise
        except OSError as error:
            raise self._broken("is gone; try again, or open a new sandbox") from error
        if data:
            return data
        raise self._broken("is gone; try again, or open a new sandbox")

    def abandon(self) -> None:
        self.is_abandoned = True
        self._stream.close()

    def close(self) -> None:
        self._stream.close()

    def _broken(self, text: str) -> SandboxError:
        self.abandon()
        return SandboxError(f"the sandbox's {self._service} {text}")


def _without(rests: list[memoryview], sent: int) -> list[memoryview]:
    """What is left to send."""
    left: list[memoryview] = []
    for rest in rests:
        skipped = min(sent, len(rest))
        sent -= skipped
        if skipped < len(rest):
            left.append(rest[skipped:])
    return left
