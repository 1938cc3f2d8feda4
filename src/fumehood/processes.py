"""Which process it is: by its number, the time it started and the boot of the machine, since a number comes back."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def identity(process: int) -> str:
    """One text for each process that ever was; ends in `gone` for one that is not there."""
    return f"{boot()} {process} {_start_time(process)}"


def is_alive(known: str) -> bool:
    """Whether the process with this identity runs on this machine, now."""
    process = known.partition(" ")[2].partition(" ")[0]
    return process.isdigit() and not known.endswith(" gone") and identity(int(process)) == known


def _start_time(process: int) -> str:
    with suppress(OSError):
        return (
            Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
        )
    return "gone"
