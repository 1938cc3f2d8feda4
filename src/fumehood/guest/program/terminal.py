"""A terminal for a run: made inside, in the run's own /dev/pts; the host gets the other end and nothing else."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import termios

# Kernel constants that the standard library's termios does not have everywhere.
_TIOCGPTPEER = 0x5441
_TIOCSPTLCK = 0x4004_5431
_TIOCGPTN = 0x8004_5430


def open_streams(link: int, size: list[int]) -> tuple[int, int, int]:
    """Standard input, output and error of a process that leads its session and has this terminal."""
    ours = os.open("/dev/pts/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    fcntl.ioctl(ours, _TIOCSPTLCK, struct.pack("i", 0))
    stream = _open_peer(ours)
    columns, rows = size
    fcntl.ioctl(stream, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    fcntl.ioctl(stream, termios.TIOCSCTTY, 0)
    with socket.socket(fileno=link) as host:
        socket.send_fds(host, [b"terminal"], [ours])
    os.close(ours)
    return stream, stream, stream


def _open_peer(ours: int) -> int:
    flags = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC
    try:
        return fcntl.ioctl(ours, _TIOCGPTPEER, flags)
    except OSError:
        # gVisor knows the terminal only by its number.
        (number,) = struct.unpack("i", fcntl.ioctl(ours, _TIOCGPTN, bytes(4)))
        return os.open(f"/dev/pts/{number}", flags)
