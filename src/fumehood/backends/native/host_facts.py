"""Facts of this host and user that decide how a policy is enforced. Reads, never changes."""

from __future__ import annotations

import os
from pathlib import Path

from fumehood.backends.native.cgroups import Hierarchy, find_hierarchies
from fumehood.frozen import frozen
from fumehood.guest.contract.landlock import landlock_abi
from fumehood.host.interpreter import Interpreter, own_interpreter


@frozen
class HostFacts:
    """User, CPUs, cgroups, Landlock and interpreter of this process."""

    is_root: bool
    uid: int
    gid: int
    cpus: tuple[int, ...]
    hierarchies: tuple[Hierarchy, ...]
    swap_is_counted: bool
    landlock_abi: int
    interpreter: Interpreter

    def controls(self, controller: str) -> Hierarchy | None:
        return next((h for h in self.hierarchies if controller in h.controllers), None)


def detect() -> HostFacts:
    hierarchies = tuple(find_hierarchies())
    return HostFacts(
        is_root=os.geteuid() == 0 and _has_all_ids(),
        uid=os.geteuid(),
        gid=os.getegid(),
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        hierarchies=hierarchies,
        swap_is_counted=_swap_is_counted(hierarchies),
        landlock_abi=landlock_abi(),
        interpreter=own_interpreter(),
    )


def _has_all_ids() -> bool:
    """Root of a user namespace is an ordinary user to the kernel, and cannot map ids that it does not have."""
    return Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]


def _swap_is_counted(hierarchies: tuple[Hierarchy, ...]) -> bool:
    """Version 1 can be configured not to count swap; that matters only where there is any."""
    memory = next((h for h in hierarchies if "memory" in h.controllers), None)
    if memory is None or memory.version == 2 or (memory.parent / "memory.memsw.limit_in_bytes").exists():
        return True
    return len(Path("/proc/swaps").read_text().splitlines()) <= 1
