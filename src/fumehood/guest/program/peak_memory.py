"""The most memory that a process has used so far, by the kernel's count; for where no cgroup counts it."""

from __future__ import annotations

from contextlib import suppress


def peak_memory_bytes(process: int) -> int:
    """0 if it has ended, or where the kernel does not say."""
    with suppress(OSError), open(f"/proc/{process}/status", encoding="utf-8", errors="replace") as stream:
        facts = dict(line.split(":", 1) for line in stream)
        peak = facts.get("VmHWM") or facts.get("VmRSS") or "0"
        return int(peak.split()[0]) * 1024
    return 0
