"""What a program gives up or is held to: rights, system calls, limits; and the tools that we hold it with."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct

from ..contract import wire
from ..contract.landlock import landlock_abi
from ..contract.limits import SANDBOX_UID
from ..isolation import kernel
from ..isolation.gate import SyscallGate
from ..isolation.plan import IsolationPlan
from ..isolation.seccomp import build_filter
from ..isolation.syscall_filter import install_filter
from ..isolation.users import map_own_user
from .attempts import expect

_NOBODY = 65534
_PROCESSES = 4
_FIRST_LANDLOCK_RIGHTS = (1 << 13) - 1


def _plan_without_privileges() -> IsolationPlan:
    plan = IsolationPlan()
    plan.call("prctl", kernel.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return plan


def landlock() -> int:
    abi = landlock_abi()
    if not abi:
        return 0
    plan, ruleset = _plan_without_privileges(), ctypes.c_int()
    rights = struct.pack("=Q", _FIRST_LANDLOCK_RIGHTS)
    plan.call("syscall", kernel.SYS_LANDLOCK_CREATE_RULESET, rights, len(rights), 0, result=ruleset)
    plan.call("syscall", kernel.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0)
    plan.carry_out()
    try:
        os.listdir("/")
    except PermissionError:
        return abi
    raise OSError(0, "a folder outside of the rules can still be read")


def _status(field: str) -> str:
    with open("/proc/self/status") as stream:
        return dict(line.rstrip("\n").split(":\t", 1) for line in stream if ":\t" in line).get(field, "")


def seccomp() -> None:
    program = build_filter(os.uname().machine, is_gated=True)
    _plan_without_privileges().carry_out()
    install_filter(program, SyscallGate())
    expect(_status("Seccomp") == "2", "the filter is not active")


def no_new_privileges() -> None:
    _plan_without_privileges().carry_out()
    expect(_status("NoNewPrivs") == "1", "the flag is not set")


def process_limit() -> None:
    """In a user namespace of its own the limit counts this run's processes and not all of the user's."""
    if os.geteuid() == 0:
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    kernel.set_dumpable(True)
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kernel.CLONE_NEWUSER)
    map_own_user(SANDBOX_UID, uid, gid)
    # Only now: a namespace also hands the limit that it was made under up to its parent, where others are counted too.
    resource.setrlimit(resource.RLIMIT_NPROC, (_PROCESSES, _PROCESSES))
    _drop_capabilities()
    started = _fork_until_refused(2 * _PROCESSES)
    expect(started == _PROCESSES - 1, f"{started + 1} processes were allowed where {_PROCESSES} are")


def _drop_capabilities() -> None:
    """Drops all capabilities: a process with some of them is not bound by limits."""
    plan = IsolationPlan()
    plan.call("capset", struct.pack("=Ii", kernel.CAPABILITY_VERSION_3, 0), bytes(24))
    plan.carry_out()


def _fork_until_refused(most: int) -> int:
    for number in range(most):
        try:
            child = os.fork()
        except BlockingIOError:
            return number
        if child == 0:
            kernel.die_with_parent()
            signal.pause()
    return most


def sealed_memory() -> None:
    descriptor = wire.sealed_file({}, b"")
    try:
        os.write(descriptor, b"x")
    except PermissionError:
        return
    raise OSError(0, "a sealed file can still be written")


def pidfd() -> None:
    child = os.fork()
    if child == 0:
        kernel.die_with_parent()
        signal.pause()
    descriptor = os.pidfd_open(child)
    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    expect(os.waitstatus_to_exitcode(status) == -signal.SIGKILL, "the signal did not arrive")


def join_cgroup(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    os.write(descriptor, b"0")
