"""The environment of every program on every backend: its variables, and what sessions preload."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from fumehood.backends.interface import PackageFolder
from fumehood.guest.contract import ipython
from fumehood.guest.contract.paths import USER_BASE, WORKSPACE
from fumehood.policy import Policy


def shell_modules(packages: PackageFolder | None) -> list[str]:
    """What a session in IPython's shell would otherwise have to import before it can start."""
    has_shell = packages is not None and Path(packages.path, ipython.PACKAGE).is_dir()
    return list(ipython.PRELOAD) if has_shell else []


def environment(policy: Policy, path: Sequence[str], cpu_count: int, packages_place: str | None) -> dict[str, str]:
    threads = str(max(1, min(cpu_count, math.ceil(policy.resources.cpus))))
    installed = [f"{packages_place}/bin"] if packages_place else []
    return {
        "PATH": ":".join(dict.fromkeys([*installed, *path, f"{USER_BASE}/bin"])),
        "HOME": WORKSPACE,
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",
        # Not in the workspace: what programs keep there for themselves is none of the caller's files.
        "XDG_CACHE_HOME": "/tmp/.cache",
        "XDG_CONFIG_HOME": "/tmp/.config",
        "PYTHONUNBUFFERED": "1",
        # Numeric libraries and Go count the host's CPUs, and would start more threads than the limits allow.
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "GOMAXPROCS": threads,
        # For interpreters that the program starts; its own has the folder in its path.
        **({"PYTHONPATH": packages_place} if packages_place else {}),
    }
