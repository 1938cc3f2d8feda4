"""What programs can leave outside of every folder: System V memory, semaphores and queues, POSIX queues."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress

from ..isolation.kernel import libc

_REMOVE = 0
_PRIVATE, _NO_RIGHTS = 0, 0
# The kernel's numbers for "how many are there" and "which one is this, whether or not it may be read", for memory,
# semaphores and queues.
_SHM_INFO, _SHM_STAT_ANY = 14, 15
_SEM_INFO, _SEM_STAT_ANY = 19, 20
_MSG_INFO, _MSG_STAT_ANY = 12, 13
_RECORD_BYTES = 512
_QUEUES = "/dev/mqueue"

Control = Callable[[int, int], int]


def remove_all() -> None:
    record = ctypes.create_string_buffer(_RECORD_BYTES)
    _remove(lambda number, do: libc.shmctl(number, do, record), _SHM_INFO, _SHM_STAT_ANY)
    _remove(lambda number, do: libc.semctl(number, 0, do, record), _SEM_INFO, _SEM_STAT_ANY)
    _remove(lambda number, do: libc.msgctl(number, do, record), _MSG_INFO, _MSG_STAT_ANY)
    with suppress(OSError):
        for name in os.listdir(_QUEUES):
            os.unlink(f"{_QUEUES}/{name}")


def _remove(control: Control, info: int, stat: int) -> None:
    """All that there are in this container: the kernel numbers their places, and says which is the last one."""
    last = control(0, info)
    for place in range(last + 1):
        identifier = control(place, stat)
        if identifier >= 0:
            control(identifier, _REMOVE)


def irremovable() -> tuple[str, ...]:
    """The system calls that make things which `remove_all` does not find on this kernel, found out by trying."""
    record = ctypes.create_string_buffer(_RECORD_BYTES)
    made: dict[str, tuple[int, Control]] = {
        "shmget": (libc.shmget(_PRIVATE, 4096, _NO_RIGHTS), lambda number, do: libc.shmctl(number, do, record)),
        "semget": (libc.semget(_PRIVATE, 1, _NO_RIGHTS), lambda number, do: libc.semctl(number, 0, do, record)),
        "msgget": (libc.msgget(_PRIVATE, _NO_RIGHTS), lambda number, do: libc.msgctl(number, do, record)),
    }
    remove_all()
    return tuple(name for name, (number, do) in made.items() if number >= 0 and do(number, _REMOVE) >= 0)
