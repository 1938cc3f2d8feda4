"""The system calls that Python does not offer, one thin function each.

Owns ctypes; nothing else in the project calls the kernel this way. Every function raises OSError with the call's
name, so that an error says which call failed. Policy decisions do not belong here.
"""

from __future__ import annotations

import ctypes
import os
import struct

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18

MOUNT_ATTR_RDONLY = 0x1
MOUNT_ATTR_NOSUID = 0x2
MOUNT_ATTR_NODEV = 0x4
MOUNT_ATTR_NOEXEC = 0x8
_MOUNT_ATTR_IDMAP = 0x00100000

MNT_DETACH = 2
AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000
OPEN_TREE_CLONE = 1
MOVE_MOUNT_F_EMPTY_PATH = 0x4

_PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_SECUREBITS = 28
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
SECCOMP_MODE_FILTER = 2
# NOROOT, NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE, each with its lock: uid 0 is nobody special any more.
SECUREBITS_LOCKED = 0b11101111

CAPABILITY_VERSION_3 = 0x20080522

_SYS_RT_SIGACTION = {"x86_64": 13, "aarch64": 134}
# System calls above 423 have one number on every architecture.
SYS_OPEN_TREE = 428
SYS_MOVE_MOUNT = 429
SYS_CLOSE_RANGE = 436
SYS_MOUNT_SETATTR = 442
SYS_LANDLOCK_CREATE_RULESET = 444
SYS_LANDLOCK_ADD_RULE = 445
SYS_LANDLOCK_RESTRICT_SELF = 446

_LANDLOCK_CREATE_RULESET_VERSION = 1
LANDLOCK_RULE_PATH_BENEATH = 1

SIOCSIFFLAGS = 0x8914
IFF_UP = 1

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def _check(result: int, call: str, subject: str = "") -> int:
    if result >= 0:
        return result
    number = ctypes.get_errno()
    raise OSError(number, f"{call}: {os.strerror(number)}", subject or None)


def _syscall(number: int, call: str, *arguments: object, subject: str = "") -> int:
    widened = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _check(libc.syscall(ctypes.c_long(number), *widened), call, subject)


def unshare(flags: int) -> None:
    _check(libc.unshare(flags), f"unshare({flags:#x})")


def setns(descriptor: int, flags: int) -> None:
    _check(libc.setns(descriptor, flags), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    result = libc.mount(
        os.fsencode(source), os.fsencode(target), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None
    )
    _check(result, "mount", target)


def unmount(target: str) -> None:
    """Detach at once; the kernel frees it when the last user is gone."""
    _check(libc.umount2(os.fsencode(target), MNT_DETACH), "umount2", target)


def pivot_into(new_root: str) -> None:
    """Make `new_root` the root of this mount namespace and let go of the old one."""
    os.chdir(new_root)
    # SAFETY: new and old root on the same place is the documented way to need no folder for the old one.
    _check(libc.pivot_root(b".", b"."), "pivot_root", new_root)
    unmount(".")
    os.chdir("/")


def clone_mount(path: str, *, recursive: bool = False) -> int:
    """A detached copy of what is mounted at `path`, as a descriptor that can be attached elsewhere."""
    flags = OPEN_TREE_CLONE | os.O_CLOEXEC | (AT_RECURSIVE if recursive else 0)
    return _syscall(SYS_OPEN_TREE, "open_tree", AT_FDCWD, os.fsencode(path), flags, subject=path)


def add_mount_attributes(descriptor: int, attributes: int, *, idmap: int | None = None) -> None:
    """Add attributes to a mount and all below it; none is ever taken away."""
    if idmap is not None:
        attributes |= _MOUNT_ATTR_IDMAP
    packed = struct.pack("=QQQQ", attributes, 0, 0, idmap or 0)
    flags = AT_RECURSIVE | AT_EMPTY_PATH
    _syscall(SYS_MOUNT_SETATTR, "mount_setattr", descriptor, b"", flags, packed, len(packed))


def attach_mount(descriptor: int, target: str) -> None:
    _syscall(
        SYS_MOVE_MOUNT,
        "move_mount",
        descriptor,
        b"",
        AT_FDCWD,
        os.fsencode(target),
        MOVE_MOUNT_F_EMPTY_PATH,
        subject=target,
    )


def _prctl(option: int, call: str, *arguments: object) -> None:
    widened = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in (*arguments, 0, 0, 0, 0)[:4]]
    _check(libc.prctl(option, *widened), f"prctl({call})")


def die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, "PR_SET_PDEATHSIG", 9)


def set_option(option: int, value: int) -> None:
    """Of this process, for those of prctl's that are a number."""
    _prctl(option, str(option), value)


def landlock_ruleset(attributes: bytes) -> int:
    return _syscall(SYS_LANDLOCK_CREATE_RULESET, "landlock_create_ruleset", attributes, len(attributes), 0)


def landlock_allow(ruleset: int, rule: bytes) -> None:
    _syscall(SYS_LANDLOCK_ADD_RULE, "landlock_add_rule", ruleset, LANDLOCK_RULE_PATH_BENEATH, rule, 0)


def landlock_restrict(ruleset: int) -> None:
    _syscall(SYS_LANDLOCK_RESTRICT_SELF, "landlock_restrict_self", ruleset, 0)


def set_dumpable(dumpable: bool) -> None:
    """Undumpable processes cannot be traced, and their /proc entries belong to nobody inside."""
    _prctl(PR_SET_DUMPABLE, "PR_SET_DUMPABLE", int(dumpable))


def reset_signal(number: int) -> None:
    """For the two signals that the C library keeps for itself and does not let anyone reset, ignored or not."""
    default = bytes(32)
    _syscall(_SYS_RT_SIGACTION[os.uname().machine], "rt_sigaction", number, default, None, 8)


def rename_process(words: list[str]) -> None:
    """Overwrite the command line that /proc shows, which names the descriptors that we were started with."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as stream:
        fields = stream.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    shown = b"".join(os.fsencode(word) + b"\0" for word in words)
    # SAFETY: these are the addresses of our own argument strings, as the kernel keeps them; the length never grows.
    ctypes.memmove(start, shown[: end - start].ljust(end - start, b"\0"), end - start)


def landlock_abi() -> int:
    """The Landlock version of this kernel, 0 without Landlock."""
    result = libc.syscall(
        ctypes.c_long(SYS_LANDLOCK_CREATE_RULESET), None, ctypes.c_long(0), _LANDLOCK_CREATE_RULESET_VERSION
    )
    return max(0, result)
