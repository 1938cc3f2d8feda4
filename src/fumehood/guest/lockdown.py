"""What the program gives up before it may run: identity, privileges, limits, and most system calls.

Everything here can only take away. It happens in the process that becomes the user's program, in this order, and the
last step (Landlock) only after the workspace is in place.
"""

from __future__ import annotations

import os
import resource

from . import kernel
from .cgroup import RunCgroups
from .rootfs import RUN_FOLDER, WORKSPACE
from .spec import CellSpec, Limits
from .steps import step
from .users import SANDBOX_UID, map_own_user

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_ALL_ACCESS_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_READABLE = _EXECUTE | _READ_FILE | _READ_DIR
_DEVICE_FOLDERS = ("/dev/pts",)
_DEVICE_FILES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


def inner_uid(spec: CellSpec) -> int:
    """The sandbox user's uid in the cell's namespace, where an unprivileged host could map only one."""
    return 0 if spec["rootless"] else SANDBOX_UID


def surrender(spec: CellSpec, cgroups: RunCgroups, seccomp_program: bytes) -> None:
    limits = spec["limits"]
    with step("joining the run's cgroups"):
        cgroups.join()
        cgroups.close()
    with step("setting limits"):
        # Process 1 is undumpable, and so are its children until they say otherwise: their /proc files are closed.
        kernel.set_dumpable(True)
        _make_first_victim()
        _set_limits(limits)
    with step("becoming the sandbox's user"):
        _become_user(inner_uid(spec))
    with step("dropping capabilities"):
        kernel.drop_capabilities()
        kernel.forbid_new_privileges()
    with step("installing the system call filter"):
        kernel.load_seccomp(seccomp_program)


def _make_first_victim() -> None:
    """When memory runs out, the kernel is to take the program, not one of ours."""
    with open("/proc/self/oom_score_adj", "w") as stream:
        stream.write("1000")


def _set_limits(limits: Limits) -> None:
    fixed = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: limits["processes"],
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_FSIZE: max(limits["disk_bytes"], limits["workspace_bytes"]),
        resource.RLIMIT_MEMLOCK: 8 * 1024 * 1024,
        resource.RLIMIT_MSGQUEUE: 819_200,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
    }
    if limits["address_space_bytes"] is not None:
        fixed[resource.RLIMIT_AS] = limits["address_space_bytes"]
    for kind, value in fixed.items():
        resource.setrlimit(kind, (value, value))
    if limits["cpu_seconds"] is not None:
        # At the soft limit the kernel sends SIGXCPU, which a program may ignore; at the hard one SIGKILL.
        soft = max(1, -int(-limits["cpu_seconds"] // 1))
        resource.setrlimit(resource.RLIMIT_CPU, (soft, soft + 1))
    if limits["affinity"] is not None:
        os.sched_setaffinity(0, limits["affinity"])


def _become_user(uid: int) -> None:
    """Enter a user namespace that owns nothing: whatever privilege is gained in it is worth nothing outside of it."""
    if uid:
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    # A change of uid makes the process undumpable, and its own /proc files belong to somebody else.
    kernel.set_dumpable(True)
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWCGROUP)
    map_own_user(SANDBOX_UID, uid, uid)


class FileRules:
    """Landlock: the second wall around files, which holds even for a descriptor that leaked in."""

    def __init__(self, writable: list[str]) -> None:
        self.abi = kernel.landlock_abi()
        if not self.abi:
            return
        self._all = _ALL_ACCESS_BY_ABI.get(self.abi, _ALL_ACCESS_BY_ABI[5])
        self._writable = self._all & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV)
        scopes = _SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS if self.abi >= 6 else 0
        self._ruleset = kernel.landlock_create_ruleset(self._all, 0, scopes, self.abi)
        self._allow("/", _READABLE)
        for folder in ("/tmp", "/dev/shm", "/proc", RUN_FOLDER, *writable):
            self._allow(folder, self._writable)
        for folder in _DEVICE_FOLDERS:
            self._allow(folder, self._writable | _IOCTL_DEV)
        for device in _DEVICE_FILES:
            self._allow(device, _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV)

    def _allow(self, path: str, access: int) -> None:
        if not os.path.isdir(path):
            access &= _EXECUTE | _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
        kernel.landlock_allow(self._ruleset, path, access & self._all)

    def enforce(self) -> None:
        """From here on this process and its descendants are bound."""
        if not self.abi:
            return
        self._allow(WORKSPACE, self._writable)
        kernel.landlock_restrict_self(self._ruleset)
        os.close(self._ruleset)
