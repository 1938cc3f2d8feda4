"""Looks for the gates of cells, and for copies of their secrets, in the memory of this process's descendants.

That takes the host's root: nobody else may read the memory of a cell.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fumehood.guest.isolation.gate import CODE, SECRET_BYTES


class FoundGate(NamedTuple):
    process: int
    secret: bytes


def descendants(process: int | None = None) -> Iterator[int]:
    tasks = Path(f"/proc/{process or os.getpid()}/task")
    names: list[str] = []
    with suppress(OSError):
        names = os.listdir(tasks)
    for task in names:
        children = ""
        with suppress(OSError):  # this thread has ended, and the children of the others still count
            children = (tasks / task / "children").read_text()
        for child in map(int, children.split()):
            yield child
            yield from descendants(child)


def memory(process: int, *, is_code: bool = False) -> Iterator[bytes]:
    """All that can be read of it, mapping by mapping, or only what it can execute and was never a file."""
    with suppress(OSError), open(f"/proc/{process}/maps") as maps, open(f"/proc/{process}/mem", "rb", 0) as contents:
        for line in maps:
            start, end = (int(edge, 16) for edge in line.split()[0].split("-"))
            rights, inode = line.split()[1], line.split()[4]
            if "r" in rights and "[v" not in line and (not is_code or ("x" in rights and inode == "0")):
                with suppress(OSError):
                    contents.seek(start)
                    yield contents.read(end - start)


def gates() -> list[FoundGate]:
    """Of cells alone. What it has forked has one too: the process that forks its runs, and a run that is set up."""
    code = CODE[os.uname().machine]
    found = {
        process: FoundGate(process, area[place + len(code) :][:SECRET_BYTES])
        for process in descendants()
        for area in memory(process, is_code=True)
        for place in range(0, len(area), mmap.PAGESIZE)  # the kernel shows neighbours of one kind as one mapping
        if area.startswith(code, place)
    }
    return [gate for gate in found.values() if parent(gate.process) not in found]


def templates(cell: int) -> set[int]:
    """The process that forks a cell's runs: the cell's child, in its own process namespace, that has runs as children.

    A run is in another one, and so is what it starts. Known by that alone, not by what is in its memory.
    """
    own = process_namespace(cell)
    outer = [process for process in descendants(cell) if process_namespace(process) == own]
    runs = {process for process in descendants(cell) if process_namespace(process) not in (own, None)}
    return {process for process in outer if parent(process) == cell and runs.intersection(descendants(process))}


def process_namespace(process: int) -> str | None:
    with suppress(OSError):
        return os.readlink(f"/proc/{process}/ns/pid")
    return None


def parent(process: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def copies(process: int, secret: bytes) -> int:
    return sum(area.count(secret) for area in memory(process))


def holds(process: int, secrets: list[bytes]) -> bool:
    return any(secret in area for area in memory(process) for secret in secrets)
