"""Messages to the service manager that has started this process, in the protocol of systemd's sd_notify."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

_SOCKET, _WATCHDOG, _PROCESS = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"


def notify(*states: str) -> None:
    """`READY=1`, `STOPPING=1`, `WATCHDOG=1`, `STATUS=text`. Without a service manager nothing happens."""
    place = os.environ.get(_SOCKET, "")
    if not place.startswith(("/", "@")):
        return
    address = f"\0{place[1:]}" if place.startswith("@") else place
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.sendto("\n".join(states).encode(), address)


def watchdog_seconds() -> float | None:
    """How often it wants `WATCHDOG=1` at least, if it does; half of the time after which it ends the process."""
    if os.environ.get(_PROCESS, str(os.getpid())) != str(os.getpid()):
        return None
    given = os.environ.get(_WATCHDOG, "")
    return int(given) / 2_000_000 if given.isascii() and given.isdigit() and int(given) > 0 else None
