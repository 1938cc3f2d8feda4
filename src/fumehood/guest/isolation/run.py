"""The isolation of one run, as the list of system calls that its process goes through before it may see any code.

Everything here takes something away, in an order that matters: what needs privileges comes first, then the privileges
go, then the system calls themselves. The last part follows when the workspace is in place.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import struct
import sys

from ..contract.cell_spec import CellLimits, CellSpec
from ..contract.limits import MOST_TERMINALS, SANDBOX_UID
from ..contract.paths import RUN_FOLDER
from . import kernel
from .executables import Executables
from .gate import Page
from .landlock import FileRules
from .plan import IsolationPlan
from .rootfs import HARMLESS
from .users import user_map_files

# Real-time signals and timers that wait. In the run's own user namespace they are counted for the run alone, but above
# it for the user who started the cell, whose own programs would be left without.
MOST_PENDING_SIGNALS = 256
# What the kernel counts for all namespaces of a user together: a run gets this part of what the user has.
_PART_OF_WATCHES = 8
_WATCH_LIMITS = ("max_inotify_instances", "max_inotify_watches")

# Where the run's process finds what it was handed, so that all other descriptors can be closed at once.
CHANNEL = 3
FIRST_CGROUP = CHANNEL + 1


def inner_uid(spec: CellSpec) -> int:
    """The sandbox user's uid in the cell's namespace, where an unprivileged host could map only one."""
    return 0 if spec["rootless"] else SANDBOX_UID


class Isolation:
    """`before` is carried out on standby, `last` once the workspace is attached."""

    def __init__(self, spec: CellSpec, masks: list[tuple[str, str]], gate: Page) -> None:
        self.before, self.last = IsolationPlan(), IsolationPlan()
        # The numbers that the process is born with: the cell writes them here before each fork.
        self.inherited = [self.before.number() for _ in range(1 + len(spec["hierarchies"]))]
        uid, limits = inner_uid(spec), spec["limits"]
        names = spec["executables"]
        _keep_descriptors(self.before, self.inherited)
        _enter_namespaces(self.before, shares_loopback=spec["shares_loopback"])
        _mount_folders(self.before, uid, limits, executable=names is None)
        switches = _mount_proc(self.before, masks)
        _join_cgroups(self.before, len(spec["hierarchies"]))
        _set_limits(self.before, limits)
        # A cgroup counts what it refuses, so that a run's end can name the limit: it has to refuse first.
        counted = any("pids" in hierarchy["controllers"] for hierarchy in spec["hierarchies"])
        _become_user(self.before, uid, limits["processes"] + counted)
        _limit_namespace(self.before, switches)
        _drop_privileges(self.before)
        path = spec["environment"]["PATH"]
        rules = FileRules(spec["writable"], None if names is None else Executables(names, path, sys.base_prefix))
        rules.prepare(self.before)
        _close_gate(self.before, gate)
        rules.enforce(self.last)
        self.before.compile()
        self.last.compile()


def _keep_descriptors(plan: IsolationPlan, inherited: list[ctypes.c_int]) -> None:
    """At known numbers, from CHANNEL on. All others belong to the cell or, worse, to other runs."""
    plan.step("closing descriptors")
    end = CHANNEL + len(inherited)
    copies = [plan.number() for _ in inherited]
    for descriptor, copy in zip(inherited, copies, strict=True):
        plan.call("fcntl", descriptor, fcntl.F_DUPFD_CLOEXEC, end, result=copy)
    for number, copy in enumerate(copies, CHANNEL):
        plan.call("dup3", copy, number, os.O_CLOEXEC)
    plan.call("syscall", kernel.SYS_CLOSE_RANGE, end, 0xFFFFFFFF, 0)


def _enter_namespaces(plan: IsolationPlan, *, shares_loopback: bool) -> None:
    """A run that shares its loopback is born in the network namespace of its sandbox."""
    plan.step("making the run's namespaces")
    # A session of its own: `kill(0, ...)` inside must reach only the run.
    plan.call("setsid")
    if shares_loopback:
        plan.call("unshare", kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC)
    else:
        plan.call("unshare", kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC)
    plan.step("raising the loopback device")
    descriptor = plan.number()
    plan.call("socket", 2, 2 | os.O_CLOEXEC, 0, result=descriptor)
    plan.call("ioctl", descriptor, kernel.SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", kernel.IFF_UP))
    plan.call("close", descriptor)


def _mount_folders(plan: IsolationPlan, uid: int, limits: CellLimits, *, executable: bool) -> None:
    """A run's own /run, /tmp and /dev/shm: three folders of one file system, so that one limit holds for all."""
    flags = HARMLESS if executable else HARMLESS | kernel.MS_NOEXEC
    plan.step("mounting the run's folders")
    plan.call("umount2", RUN_FOLDER, kernel.MNT_DETACH)
    options = f"mode=755,uid={uid},gid={uid},size={limits['disk_bytes']},nr_inodes={limits['inodes']}"
    plan.call("mount", "scratch", RUN_FOLDER, "tmpfs", flags, options)
    for name, target, mode in (("tmp", "/tmp", 0o1777), ("shm", "/dev/shm", 0o1777), ("run", RUN_FOLDER, 0o755)):
        folder = f"{RUN_FOLDER}/{name}"
        plan.call("mkdir", folder, 0o755)
        plan.call("chmod", folder, mode)
        plan.call("chown", folder, uid, uid)
        _attach_copy(plan, folder, target)
    pts = kernel.MS_NOSUID | kernel.MS_NOEXEC
    plan.call("mount", "devpts", "/dev/pts", "devpts", pts, f"newinstance,ptmxmode=0666,max={MOST_TERMINALS}")


def _mount_proc(plan: IsolationPlan, masks: list[tuple[str, str]]) -> ctypes.c_int:
    """Returns where a descriptor of /proc/sys/user will be, below the read-only copy of /proc/sys."""
    plan.step("mounting /proc")
    # Processes that the program has no rights over are not shown: process 1 is the only one.
    plan.call("mount", "proc", "/proc", "proc", HARMLESS | kernel.MS_NOEXEC, "hidepid=2")
    plan.step("hiding what /proc tells about the host")
    for path, cover in masks:
        _attach_copy(plan, cover, path)
    switches = plan.number()
    plan.call("open", "/proc/sys/user", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, result=switches)
    _attach_copy(plan, "/proc/sys", "/proc/sys", kernel.MOUNT_ATTR_RDONLY)
    return switches


def _attach_copy(plan: IsolationPlan, source: str, target: str, attributes: int = 0) -> None:
    tree = plan.number()
    clone = kernel.OPEN_TREE_CLONE | os.O_CLOEXEC
    plan.call("syscall", kernel.SYS_OPEN_TREE, kernel.AT_FDCWD, source, clone, result=tree)
    if attributes:
        packed = struct.pack("=QQQQ", attributes, 0, 0, 0)
        plan.call("syscall", kernel.SYS_MOUNT_SETATTR, tree, b"", kernel.AT_EMPTY_PATH, packed, len(packed))
    move = kernel.MOVE_MOUNT_F_EMPTY_PATH
    plan.call("syscall", kernel.SYS_MOVE_MOUNT, tree, b"", kernel.AT_FDCWD, target, move)
    plan.call("close", tree)


def _join_cgroups(plan: IsolationPlan, count: int) -> None:
    plan.step("joining the run's cgroups")
    for number in range(count):
        plan.call("write", FIRST_CGROUP + number, b"0", 1)


def _set_limits(plan: IsolationPlan, limits: CellLimits) -> None:
    plan.step("setting limits")
    # The cell changed its uid, which made it and its children undumpable: their own /proc files have an unmapped owner.
    plan.call("prctl", kernel.PR_SET_DUMPABLE, 1, 0, 0, 0)
    # When memory runs out, the kernel is to take the program and none of ours.
    plan.write_file("/proc/self/oom_score_adj", "1000")
    for kind, soft, hard in _rlimits(limits):
        plan.call("setrlimit", kind, struct.pack("=QQ", soft, hard))
    if limits["affinity"] is not None:
        mask = sum(1 << cpu for cpu in limits["affinity"])
        packed = mask.to_bytes(128, "little")
        plan.call("sched_setaffinity", 0, len(packed), packed)


def _rlimits(limits: CellLimits) -> list[tuple[int, int, int]]:
    fixed = {
        resource.RLIMIT_SIGPENDING: MOST_PENDING_SIGNALS,
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_FSIZE: max(limits["disk_bytes"], limits["workspace_bytes"]),
        resource.RLIMIT_MEMLOCK: 8 * 1024 * 1024,
        resource.RLIMIT_MSGQUEUE: 819_200,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
    }
    if limits["address_space_bytes"] is not None:
        fixed[resource.RLIMIT_AS] = own_address_space() + limits["address_space_bytes"]
    rlimits = [(kind, value, value) for kind, value in fixed.items()]
    if limits["cpu_seconds"] is not None:
        # At the soft limit the kernel sends SIGXCPU, which a program may ignore; at the hard one SIGKILL.
        soft = max(1, -int(-limits["cpu_seconds"] // 1))
        rlimits.append((resource.RLIMIT_CPU, soft, soft + 1))
    return rlimits


def own_address_space() -> int:
    """What the warm interpreter takes is not the program's; a cgroup does not charge it to the program either."""
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[0]) * resource.getpagesize()


def _become_user(plan: IsolationPlan, uid: int, processes: int) -> None:
    """Enter a user namespace that owns nothing: whatever privilege is gained in it is worth nothing outside of it."""
    plan.step("becoming the sandbox's user")
    if uid:
        plan.call("setresgid", uid, uid, uid)
        plan.call("setresuid", uid, uid, uid)
        # That was a change of uid again.
        plan.call("prctl", kernel.PR_SET_DUMPABLE, 1, 0, 0, 0)
    plan.call("unshare", kernel.CLONE_NEWUSER | kernel.CLONE_NEWCGROUP)
    for path, text in user_map_files(SANDBOX_UID, uid, uid):
        plan.write_file(path, text)
    # Here and not with the other limits: in the namespace of its own it counts this run's processes alone.
    plan.call("setrlimit", resource.RLIMIT_NPROC, struct.pack("=QQ", processes, processes))


def _limit_namespace(plan: IsolationPlan, switches: ctypes.c_int) -> None:
    """In the run's own user namespace, whose switches these are, while it may still turn them.

    Denying user namespaces is a second wall behind the filter: without one no process can make another kind, since all
    need a capability.
    """
    plan.step("limiting what the run's namespace may have")
    most = {"max_user_namespaces": 0, **{name: _part_of_watches(name) for name in _WATCH_LIMITS}}
    for name, value in most.items():
        descriptor, text = plan.number(), str(value).encode()
        plan.call("openat", switches, name, os.O_WRONLY | os.O_CLOEXEC, result=descriptor)
        plan.call("write", descriptor, text, len(text))
        plan.call("close", descriptor)
    plan.call("close", switches)


def _part_of_watches(name: str) -> int:
    with open(f"/proc/sys/fs/inotify/{name.replace('inotify', 'user')}", encoding="ascii") as stream:
        return max(1, int(stream.read()) // _PART_OF_WATCHES)


def _close_gate(plan: IsolationPlan, gate: Page) -> None:
    """Erases the secret of the filter, which was inherited from the cell: set-up calls fail from here on."""
    plan.step("closing the gate to set-up calls")
    plan.call("munmap", ctypes.c_void_p(gate.address), gate.size)


def _drop_privileges(plan: IsolationPlan) -> None:
    plan.step("dropping privileges")
    with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as stream:
        last = int(stream.read())
    for capability in range(last + 1):
        plan.call("prctl", kernel.PR_CAPBSET_DROP, capability, 0, 0, 0)
    plan.call("prctl", kernel.PR_CAP_AMBIENT, kernel.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    plan.call("prctl", kernel.PR_SET_SECUREBITS, kernel.SECUREBITS_LOCKED, 0, 0, 0)
    plan.call("capset", struct.pack("=Ii", kernel.CAPABILITY_VERSION_3, 0), bytes(24))
    plan.call("prctl", kernel.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
