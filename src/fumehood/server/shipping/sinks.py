"""What a sink is: it gets batches and returns when the other end has them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from fumehood.errors import UsageError
from fumehood.server.shipping.chains import RecordBatch

_MOST_SECRET_BYTES = 16 * 1024


class SinkError(Exception):
    """The other end does not have the batch, as far as is known; it will be sent again."""


class Sink(Protocol):
    """Used by one thread, and blocks it."""

    def send(self, batch: RecordBatch) -> None:
        """SinkError unless the other end has confirmed all of it."""
        ...

    def abort(self) -> None:
        """Ends a `send` that is under way; from another thread."""
        ...


def read_secret(path: str, least: int = 1) -> str:
    """The text of a file that only its owner can read."""
    try:
        details = Path(path).stat()
        content = Path(path).read_bytes() if details.st_size <= _MOST_SECRET_BYTES else b""
        text = content.decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as a secret: {error}") from error
    if details.st_mode & 0o007:
        raise UsageError(f"{path} can be read by every user; run `chmod o= {path}`")
    if len(text) < least:
        raise UsageError(f"{path} must hold a secret of {least} characters or more")
    return text
