"""Tries each mechanism of the isolation for real, in a child of its own, and says what the kernel answered.

A program by itself, started by `hood doctor`: whatever it does to itself ends with it. It judges nothing; the
caller decides what an answer means and what to do about it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from ..contract.probe import ProbeAnswer
from ..isolation import kernel
from . import namespaces, restrictions
from .attempts import attempt

__all__ = ["PROBES", "ProbeAnswer", "main"]

PROBES: dict[str, Callable[[], int | None]] = {
    "user namespaces": namespaces.enter_user_namespace,
    "mount namespace": namespaces.mount_namespace,
    "process namespace": namespaces.process_namespace,
    "network namespace": namespaces.network_namespace,
    "IPC namespace": lambda: namespaces.enter(kernel.CLONE_NEWIPC),
    "UTS namespace": lambda: namespaces.enter(kernel.CLONE_NEWUTS),
    "cgroup namespace": lambda: namespaces.enter(kernel.CLONE_NEWCGROUP),
    "fresh /proc": namespaces.fresh_proc,
    "mount attributes": namespaces.mount_attributes,
    "id-mapped mounts": namespaces.id_mapped_mounts,
    "Landlock": restrictions.landlock,
    "seccomp filter": restrictions.seccomp,
    "no_new_privs": restrictions.no_new_privileges,
    "RLIMIT_NPROC": restrictions.process_limit,
    "sealed memory": restrictions.sealed_memory,
    "pidfd": restrictions.pidfd,
}


def main() -> None:
    """Reads which cgroups to try to join, by controller; writes one answer for each mechanism."""
    entrances: dict[str, str] = json.load(sys.stdin)
    answers = {name: attempt(function) for name, function in PROBES.items()}
    for controller, path in entrances.items():
        answers[f"{controller} cgroup"] = attempt(lambda path=path: restrictions.join_cgroup(path))
    json.dump(answers, sys.stdout)
