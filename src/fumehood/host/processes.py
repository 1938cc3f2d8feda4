"""Which process it is: by its number, the time it started, and where that number counts: the process namespace and the
boot of the machine. A number comes back, and means another process elsewhere.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_UNKNOWN = "unknown"


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def namespace() -> str:
    """The process namespace that we are in. Unknown where /proc is of another one: its numbers are not ours."""
    if os.readlink("/proc/self") != str(os.getpid()):
        return _UNKNOWN
    return os.readlink("/proc/self/ns/pid").removeprefix("pid:[").removesuffix("]")


def start_time(process: int) -> str | None:
    """In the kernel's ticks since the boot; None for a process that is not there, or that we may not look at."""
    with suppress(OSError):
        return (
            Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
        )
    return None


def identity(process: int) -> str:
    """One text for each process that ever was; ends in `gone` for one that is not there."""
    return f"{boot()} {namespace()} {process} {start_time(process) or 'gone'}"


def is_alive(known: str) -> bool:
    """Whether the process with this identity runs on this machine, now, and can be seen from here."""
    process = known.split(" ")[2] if known.count(" ") == 3 else ""
    return process.isdigit() and not known.endswith(" gone") and identity(int(process)) == known


def is_gone(known: str) -> bool:
    """Whether the process with this identity has ended for certain. Always False for another machine."""
    machine, _, rest = known.partition(" ")
    place, _, rest = rest.partition(" ")
    process, _, started = rest.partition(" ")
    return machine == boot() and process.isdigit() and has_ended(place, int(process), started)


def has_ended(place: str, process: int, started: str) -> bool:
    """Whether the process of that namespace that started then has ended for certain."""
    if place == _UNKNOWN or place != namespace():
        return False
    found = start_time(process)
    return not _exists(process) if found is None else found != started


def _exists(process: int) -> bool:
    """Other users' processes may be hidden in /proc; a signal that is none reaches them, or says why not."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
