"""A TCP port of this machine to listen at."""

from __future__ import annotations

import os
import socket

from fumehood.errors import UsageError
from fumehood.host.loopback import is_loopback

_BACKLOG = 512


def listen_at(host: str, port: int, remedy: str, *, is_local: bool) -> socket.socket:
    """UsageError if it cannot be had, or if a name that is to be this machine's own leads elsewhere."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        if is_local and not is_loopback(str(address[0])):
            raise UsageError(f"{host} leads to {address[0]} here, which is not the loopback")
        return socket.create_server(address, family=family, backlog=_BACKLOG)
    except OSError as error:
        # Python adds the address to what the system says; names that lead nowhere have numbers below zero.
        reason = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror or error
        raise UsageError(f"cannot listen at {host}:{port}: {reason}; {remedy}") from None
