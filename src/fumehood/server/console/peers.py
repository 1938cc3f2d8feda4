"""Which user of this machine is at the other end of a connection to the loopback, as the kernel knows it."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

_CONNECTIONS = Path("/proc/self/net/tcp")
_ESTABLISHED = "01"  # the kernel forgets whose a connection was that its owner has closed
_NOBODY = 2**32 - 1


def owner_of(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The user whose socket `client` is. None if the connection is not there any more."""
    wanted = _written(client), _written(server), _ESTABLISHED
    for line in _CONNECTIONS.read_text().splitlines()[1:]:
        fields = line.split()
        if (fields[1], fields[2], fields[3]) == wanted:
            return int(fields[7])
    return None


def trusted_users() -> frozenset[int]:
    """The one who runs this process, root, and whoever became this user by `sudo` or `su`, whose browser it is."""
    found = {os.geteuid(), 0}
    with suppress(OSError, ValueError):
        found.add(int(Path("/proc/self/loginuid").read_text()))
    with suppress(ValueError):
        found.add(int(os.environ.get("SUDO_UID", "")))
    return frozenset(found - {_NOBODY})


def _written(address: tuple[str, int]) -> str:
    """As the kernel writes it: the address as a number of this machine's byte order."""
    number = int.from_bytes(socket.inet_aton(address[0]), sys.byteorder)
    return f"{number:08X}:{address[1]:04X}"
