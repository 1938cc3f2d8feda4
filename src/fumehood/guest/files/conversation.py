"""The host as the file service knows it: what it says, what it sends, and that it may be gone at any moment."""

from __future__ import annotations

from collections.abc import Iterator

from ..contract import frames


class FileRefusedError(Exception):
    """A refusal for which the kernel has no errno."""

    def __init__(self, reason: str, **details: int | str) -> None:
        super().__init__(reason)
        self.details = details


class HungUpError(Exception):
    """The host is gone, or does not want to hear more."""


class Host:
    """The other end; its silence is not to be mistaken for an error of the file system."""

    def __init__(self, conversation: frames.FrameSocket) -> None:
        self._conversation = conversation

    def send(self, header: frames.Header, body: bytes | memoryview = b"") -> None:
        try:
            self._conversation.send(header, body)
        except OSError as error:
            raise HungUpError from error

    def pause(self, seconds: float) -> None:
        """Waits; raises HungUpError at once if the host hangs up. The host sends nothing before it has an answer."""
        if self._conversation.wait_readable(seconds):
            raise HungUpError

    def receive(self) -> tuple[frames.Header, bytes]:
        try:
            message = self._conversation.receive()
        except OSError as error:
            raise HungUpError from error
        if message is None:
            raise HungUpError
        return message


class Incoming:
    """The data of one file on its way in. The host may take it back until the end."""

    def __init__(self, host: Host, header: frames.Header, body: bytes) -> None:
        self._host, self._header, self._body = host, header, body

    def chunks(self) -> Iterator[bytes]:
        yield self._body
        while not self._header["last"]:
            self._host.send({"more": True})
            self._header, self._body = self._host.receive()
            yield self._body

    def check(self, sha256: str) -> None:
        """The host ends with the digest of what it sent; without one it has taken everything back."""
        if self._header.get("sha256") != sha256:
            raise FileRefusedError("digest")

    def check_complete(self) -> None:
        if "sha256" not in self._header:
            raise FileRefusedError("digest")

    def skip_rest(self) -> None:
        while not self._header["last"]:
            self._header, _ = self._host.receive()
