"""What a program's process gives up before it may see any code, as a list of system calls.

The container's own configuration holds for everybody in it, the guest included. This comes on top: limits of each
process and Landlock, for programs alone; and a filter of system calls that is exact where an engine's profile is not.
"""

from __future__ import annotations

import os
import resource
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from ..contract.landlock import landlock_abi
from ..contract.limits import NO_CORE_DUMP
from ..contract.relay_spec import RelaySpec, RunLimits
from ..isolation import kernel
from ..isolation.executables import Executables
from ..isolation.landlock import FileRules
from ..isolation.plan import IsolationPlan
from ..isolation.run import MOST_PENDING_SIGNALS, own_address_space
from ..isolation.seccomp import build_filter
from ..isolation.steps import step
from ..isolation.syscall_filter import install_filter
from . import ipc_cleanup

# gVisor has nothing behind these that could be used too much.
_MAY_BE_MISSING = {
    resource.RLIMIT_MEMLOCK,
    resource.RLIMIT_MSGQUEUE,
    resource.RLIMIT_NICE,
    resource.RLIMIT_RTPRIO,
    resource.RLIMIT_SIGPENDING,
}


class RelayIsolation:
    """`layers` are the names of those that this kernel has."""

    def __init__(self, spec: RelaySpec) -> None:
        self.plan = IsolationPlan()
        self.spec = spec
        self.layers = ["seccomp"]
        _become_ordinary(self.plan, spec["user"])
        _set_limits(self.plan, spec["limits"])
        if landlock_abi():
            self.layers.append("Landlock")
            rules = FileRules(spec["writable"], _executables(spec), spec["hidden"])
            rules.prepare(self.plan)
            rules.enforce(self.plan)

    def install_filter(self) -> None:
        """In the forker, once: whatever is born of it inherits the filter, programs and their supervisors alike."""
        with step("installing the system call filter"):
            kernel.set_option(kernel.PR_SET_NO_NEW_PRIVS, 1)
            install_filter(_seccomp_program(self.spec))


@contextmanager
def acting_as(user: list[int] | None) -> Iterator[None]:
    """Runs a block with the rights of programs, where the guest has more, for work in folders that programs can write.

    And what it makes is theirs: /dev/stdout, for one, is opened anew only by a pipe's owner.
    """
    if user is None:
        yield
        return
    uid, gid = user
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def _executables(spec: RelaySpec) -> Executables | None:
    names = spec["executables"]
    return (
        None
        if names is None
        else Executables(names, spec["environment"]["PATH"], "/usr" if spec["hidden"] else sys.base_prefix)
    )


def _seccomp_program(spec: RelaySpec) -> bytes:
    # No run may make what cannot be removed, because the next run would find it.
    with acting_as(spec["user"]):
        absent = ipc_cleanup.irremovable()
    return relay_filter(absent, executes_files_only=spec["executables"] is not None)


@cache
def relay_filter(absent: tuple[str, ...], *, executes_files_only: bool) -> bytes:
    """The filter of system calls. A machine makes the usual ones before it is copied: no policy changes them."""
    return build_filter(os.uname().machine, is_shared=True, absent=absent, executes_files_only=executes_files_only)


def _become_ordinary(plan: IsolationPlan, user: list[int] | None) -> None:
    plan.step("becoming the sandbox's user")
    # A session of its own: `kill(0, ...)` inside must reach the run alone.
    plan.call("setsid")
    if user:
        uid, gid = user
        plan.call("setgroups", 0, None)
        plan.call("setresgid", gid, gid, gid)
        plan.call("setresuid", uid, uid, uid)
    # The guest is undumpable, and so are its copies: their own /proc files belong to root.
    plan.call("prctl", kernel.PR_SET_DUMPABLE, 1, 0, 0, 0)


def _set_limits(plan: IsolationPlan, limits: RunLimits) -> None:
    plan.step("setting limits")
    if os.path.exists("/proc/self/oom_score_adj"):
        # When memory runs out, the kernel is to take the program and none of ours.
        plan.write_file("/proc/self/oom_score_adj", "1000")
    fixed = {
        resource.RLIMIT_CORE: NO_CORE_DUMP,
        resource.RLIMIT_SIGPENDING: MOST_PENDING_SIGNALS,
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_MEMLOCK: 8 * 1024 * 1024,
        resource.RLIMIT_MSGQUEUE: 819_200,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
    }
    if limits["address_space_bytes"] is not None:
        fixed[resource.RLIMIT_AS] = own_address_space() + limits["address_space_bytes"]
    for kind, value in fixed.items():
        if kind in _MAY_BE_MISSING and not _can_limit(kind):
            continue
        most = resource.getrlimit(kind)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        if resource.getrlimit(kind) == (value, value):
            continue  # the engine has set it, and its profile may refuse to do so again
        plan.call("setrlimit", kind, struct.pack("=QQ", value, value))
    if limits["cpu_seconds"] is not None:
        # At the soft limit the kernel sends SIGXCPU, which a program may ignore; at the hard one SIGKILL.
        soft = max(1, -int(-limits["cpu_seconds"] // 1))
        plan.call("setrlimit", resource.RLIMIT_CPU, struct.pack("=QQ", soft, soft + 1))


def _can_limit(kind: int) -> bool:
    try:
        resource.setrlimit(kind, resource.getrlimit(kind))
    except (OSError, ValueError):
        return False
    return True
