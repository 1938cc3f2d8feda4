"""The emulators of this process's machines, as the host sees them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def find_emulators() -> set[int]:
    """Those that descend from this process: their cells are its children."""
    statuses = {int(name): read_status(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    return {process for process, status in statuses.items() if _is_emulator(status) and _is_ours(process, statuses)}


def read_status(process: int) -> dict[str, str]:
    """What everyone may read of a process; nothing of one that has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def cpu_seconds(process: int) -> float:
    """That it has had so far, in all its threads."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _is_emulator(status: Mapping[str, str]) -> bool:
    return status.get("Name", "").startswith("qemu-system")


def _is_ours(process: int, statuses: Mapping[int, Mapping[str, str]]) -> bool:
    while process > 1:
        process = int(statuses.get(process, {}).get("PPid", "0"))
        if process == os.getpid():
            return True
    return False
