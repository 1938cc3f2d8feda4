"""The system calls that Python does not offer, one thin function each.

Owns ctypes; nothing else in the project calls the kernel this way. Every function raises OSError with the call's
name, so that an error says which call failed. Policy decisions do not belong here.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
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

_MNT_DETACH = 2
_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_AT_RECURSIVE = 0x8000
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 0x4

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_SECUREBITS = 28
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SECCOMP_MODE_FILTER = 2
# NOROOT, NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE, each with its lock: uid 0 is nobody special any more.
_SECUREBITS_LOCKED = 0b11101111

_CAPABILITY_VERSION_3 = 0x20080522

# System calls above 423 have one number on every architecture.
_SYS_OPEN_TREE = 428
_SYS_MOVE_MOUNT = 429
_SYS_MOUNT_SETATTR = 442
_SYS_LANDLOCK_CREATE_RULESET = 444
_SYS_LANDLOCK_ADD_RULE = 445
_SYS_LANDLOCK_RESTRICT_SELF = 446

_LANDLOCK_CREATE_RULESET_VERSION = 1
_LANDLOCK_RULE_PATH_BENEATH = 1

_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _check(result: int, call: str, subject: str = "") -> int:
    if result >= 0:
        return result
    number = ctypes.get_errno()
    raise OSError(number, f"{call}: {os.strerror(number)}", subject or None)


def _syscall(number: int, call: str, *arguments: object, subject: str = "") -> int:
    widened = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _check(_libc.syscall(ctypes.c_long(number), *widened), call, subject)


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def setns(descriptor: int, flags: int) -> None:
    _check(_libc.setns(descriptor, flags), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    result = _libc.mount(
        os.fsencode(source), os.fsencode(target), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None
    )
    _check(result, "mount", target)


def unmount(target: str) -> None:
    """Detach at once; the kernel frees it when the last user is gone."""
    _check(_libc.umount2(os.fsencode(target), _MNT_DETACH), "umount2", target)


def pivot_into(new_root: str) -> None:
    """Make `new_root` the root of this mount namespace and let go of the old one."""
    os.chdir(new_root)
    # SAFETY: new and old root on the same place is the documented way to need no folder for the old one.
    _check(_libc.pivot_root(b".", b"."), "pivot_root", new_root)
    unmount(".")
    os.chdir("/")


def clone_mount(path: str, *, recursive: bool = False) -> int:
    """A detached copy of what is mounted at `path`, as a descriptor that can be attached elsewhere."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | (_AT_RECURSIVE if recursive else 0)
    return _syscall(_SYS_OPEN_TREE, "open_tree", _AT_FDCWD, os.fsencode(path), flags, subject=path)


def add_mount_attributes(descriptor: int, attributes: int, *, idmap: int | None = None) -> None:
    """Add attributes to a mount and all below it; none is ever taken away."""
    if idmap is not None:
        attributes |= _MOUNT_ATTR_IDMAP
    packed = struct.pack("=QQQQ", attributes, 0, 0, idmap or 0)
    flags = _AT_RECURSIVE | _AT_EMPTY_PATH
    _syscall(_SYS_MOUNT_SETATTR, "mount_setattr", descriptor, b"", flags, packed, len(packed))


def attach_mount(descriptor: int, target: str) -> None:
    _syscall(
        _SYS_MOVE_MOUNT,
        "move_mount",
        descriptor,
        b"",
        _AT_FDCWD,
        os.fsencode(target),
        _MOVE_MOUNT_F_EMPTY_PATH,
        subject=target,
    )


def _prctl(option: int, call: str, *arguments: object) -> None:
    widened = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in (*arguments, 0, 0, 0, 0)[:4]]
    _check(_libc.prctl(option, *widened), f"prctl({call})")


def die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, "PR_SET_PDEATHSIG", 9)


def set_dumpable(dumpable: bool) -> None:
    """Undumpable processes cannot be traced, and their /proc entries belong to nobody inside."""
    _prctl(_PR_SET_DUMPABLE, "PR_SET_DUMPABLE", int(dumpable))


def forbid_new_privileges() -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, "PR_SET_NO_NEW_PRIVS", 1)


def drop_capabilities() -> None:
    """Empty every capability set, the bounding set included, and lock the way back."""
    for capability in range(64):
        # The kernel knows fewer than 64 and says EINVAL for the rest.
        if _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            break
    _prctl(_PR_CAP_AMBIENT, "PR_CAP_AMBIENT", _PR_CAP_AMBIENT_CLEAR_ALL)
    _prctl(_PR_SET_SECUREBITS, "PR_SET_SECUREBITS", _SECUREBITS_LOCKED)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(header, bytes(24)), "capset")


def load_seccomp(program: bytes) -> None:
    """Install a compiled filter on this thread; it holds for all descendants and can't be taken off."""
    buffer = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    _prctl(_PR_SET_SECCOMP, "PR_SET_SECCOMP", _SECCOMP_MODE_FILTER, fprog)


def landlock_abi() -> int:
    """The Landlock version of this kernel, 0 without Landlock."""
    result = _libc.syscall(
        ctypes.c_long(_SYS_LANDLOCK_CREATE_RULESET), None, ctypes.c_long(0), _LANDLOCK_CREATE_RULESET_VERSION
    )
    return max(0, result)


def landlock_create_ruleset(files: int, network: int, scopes: int, abi: int) -> int:
    packed = struct.pack("=QQQ", files, network, scopes)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    return _syscall(_SYS_LANDLOCK_CREATE_RULESET, "landlock_create_ruleset", packed, size, 0)


def landlock_allow(ruleset: int, path: str, access: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", access, descriptor)
        _syscall(
            _SYS_LANDLOCK_ADD_RULE, "landlock_add_rule", ruleset, _LANDLOCK_RULE_PATH_BENEATH, rule, 0, subject=path
        )
    finally:
        os.close(descriptor)


def landlock_restrict_self(ruleset: int) -> None:
    _syscall(_SYS_LANDLOCK_RESTRICT_SELF, "landlock_restrict_self", ruleset, 0)


def raise_loopback() -> None:
    """A new network namespace has a loopback device that is down; programs expect it up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
        request = struct.pack("16sH22x", b"lo", 0)
        (flags,) = struct.unpack_from("H", fcntl.ioctl(probe, _SIOCGIFFLAGS, request), 16)
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | _IFF_UP))
