"""Log records of a command that serves others, as messages on standard error."""

from __future__ import annotations

import logging

from fumehood.cli.output import say

# What asyncio says whenever the client of NATS closes a connection with TLS.
_NOISE = "returning true from eof_received() has no effect when using ssl"


class LoggedToTerminal(logging.Handler):
    """Harmless for a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg != _NOISE:
            say(self.format(record))


def show_warnings() -> None:
    logging.basicConfig(level=logging.WARNING, handlers=[LoggedToTerminal()], force=True)
