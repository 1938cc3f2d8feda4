"""Whose container it is: written on it, so that one whose owner is gone can be told from one that is in use.

A process is known by its number, the time it started and the boot of the machine: a number alone comes back.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

OWNER = "fumehood.owner"
LEASE = "fumehood.lease"
POLICY = "fumehood.policy"


def labels(policy_digest: str) -> dict[str, str]:
    return {OWNER: _describe(os.getpid()), LEASE: secrets.token_hex(8), POLICY: policy_digest}


def is_gone(owner: str) -> bool:
    """Whether the process that a label names has ended. A container of another machine's is not ours to judge."""
    boot, _, rest = owner.partition(" ")
    if boot != _boot():
        return False
    process = rest.partition(" ")[0]
    return not process.isdigit() or _describe(int(process)) != owner


def _describe(process: int) -> str:
    return f"{_boot()} {process} {_start_time(process)}"


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _start_time(process: int) -> str:
    with suppress(OSError):
        return (
            Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
        )
    return "gone"
