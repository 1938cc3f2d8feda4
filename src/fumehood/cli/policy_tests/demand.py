"""Runs in the sandbox: asks for an amount of one resource. Exits with REFUSED when the answer is an error.

Other refusals end the program: whoever started it is told by the run's result.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys

REFUSED = 3
_PAGE = 4096
_BLOCK = 65536


def take_memory(amount: int) -> None:
    memory = mmap.mmap(-1, max(amount, 1))
    for place in range(0, amount, _PAGE):
        memory[place] = 1


def take_processes(amount: int) -> None:
    for _ in range(amount):
        if os.fork() == 0:
            signal.pause()


def take_open_files(amount: int) -> None:
    for _ in range(amount):
        os.open("/dev/null", os.O_RDONLY)


def take_disk(amount: int) -> None:
    with open("/tmp/demand", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(amount, 1))


def take_inodes(amount: int) -> None:
    for number in range(amount):
        os.close(os.open(f"/tmp/{number}", os.O_CREAT | os.O_WRONLY, 0o600))


def take_output(amount: int) -> None:
    for place in range(0, amount, _BLOCK):
        os.write(1, b"." * min(_BLOCK, amount - place))


if __name__ == "__main__":
    _WAYS = {
        "memory": take_memory,
        "processes": take_processes,
        "open_files": take_open_files,
        "disk": take_disk,
        "inodes": take_inodes,
        "output": take_output,
    }
    try:
        _WAYS[sys.argv[1]](int(sys.argv[2]))
    except (OSError, MemoryError):
        os._exit(REFUSED)
    os._exit(0)
