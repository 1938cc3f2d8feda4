"""The system calls that Python does not offer, one thin function each.

Owns ctypes; nothing else in the project calls the kernel this way. Every function raises OSError with the call's
name, so that an error says which call failed. Policy decisions do not belong here.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal
import struct
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from .seccomp import set_up_numbers

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
# NOROOT, NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE, each with its lock: uid 0 has no special rights any more.
SECUREBITS_LOCKED = 0b11101111

CAPABILITY_VERSION_3 = 0x20080522

_SYS_RT_SIGACTION = {"x86_64": 13, "aarch64": 134}
_SYS_CLONE = {"x86_64": 56, "aarch64": 220}
_SYS_GETRANDOM = {"x86_64": 318, "aarch64": 278}
# System calls above 423 have one number on every architecture.
SYS_OPEN_TREE = 428
SYS_MOVE_MOUNT = 429
SYS_CLOSE_RANGE = 436
SYS_MOUNT_SETATTR = 442
SYS_LANDLOCK_CREATE_RULESET = 444
SYS_LANDLOCK_ADD_RULE = 445
SYS_LANDLOCK_RESTRICT_SELF = 446

LANDLOCK_RULE_PATH_BENEATH = 1

_AF_NETLINK, _AF_PACKET, _SOL_SOCKET, _SO_ATTACH_FILTER = 16, 17, 1, 26
SIOCSIFFLAGS = 0x8914
IFF_UP = 1

_MACHINE = os.uname().machine
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.mmap.restype = ctypes.c_void_p
_fork = ctypes.PyDLL(None, use_errno=True).fork
_MAP_FAILED = ctypes.c_void_p(-1).value


def _ungated(number: int, *arguments: Any) -> int:
    result = libc.syscall(ctypes.c_long(number), *arguments)
    return result if result >= 0 else -ctypes.get_errno()


_set_up = _ungated


def set_up_through(gate: Callable[..., int]) -> None:
    """How this process, as a whole, makes the calls that set up a run from here on; see `gate`."""
    global _set_up
    _set_up = gate


def set_up_function() -> Callable[..., int]:
    """Takes the number of a system call and its arguments; returns the result, or the error as a negative number."""
    return _set_up


def _check(result: int, call: str, subject: str = "") -> int:
    if result >= 0:
        return result
    number = ctypes.get_errno()
    raise OSError(number, f"{call}: {os.strerror(number)}", subject or None)


def _syscall(number: int, call: str, *arguments: object, subject: str = "") -> int:
    return _check(libc.syscall(ctypes.c_long(number), *_widened(arguments)), call, subject)


def _set_up_or_raise(name: str, *arguments: object, subject: str = "") -> int:
    result = _set_up(set_up_numbers(_MACHINE)[name], *_widened(arguments))
    if result < 0:
        raise OSError(-result, f"{name}: {os.strerror(-result)}", subject or None)
    return result


class PreparedCall:
    """A set-up call that is made often, with the same numbers: making it touches little memory."""

    def __init__(self, name: str, *arguments: int) -> None:
        self._name, self._call = name, partial(_set_up, set_up_numbers(_MACHINE)[name], *_widened(arguments))

    def make(self) -> None:
        result = self._call()
        if result < 0:
            raise OSError(-result, f"{self._name}: {os.strerror(-result)}")


def _widened(arguments: Iterable[object]) -> list[object]:
    return [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]


def unshare(flags: int) -> None:
    _set_up_or_raise("unshare", flags, subject=f"flags {flags:#x}")


def clone(flags: int) -> int:
    """As `os.fork`, into new namespaces at once; 0 in the child, which must do next to nothing: Python knows nothing
    of it."""
    return _syscall(_SYS_CLONE[_MACHINE], "clone", flags | signal.SIGCHLD, 0, 0, 0, 0)


def fork() -> int:
    """As `os.fork` in a process with one thread, without the hooks that modules have registered.

    By the C library's own, while Python's lock is held: what Python would do in the child is for other threads, and
    touches memory that then has to be copied.
    """
    return _check(_fork(), "fork")


def setns(descriptor: int, flags: int) -> None:
    _set_up_or_raise("setns", descriptor, flags)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    options = (kind.encode() or None, flags, data.encode() or None)
    _set_up_or_raise("mount", os.fsencode(source), os.fsencode(target), *options, subject=target)


def unmount(target: str) -> None:
    """Detach at once; the kernel frees it when the last user is gone."""
    _set_up_or_raise("umount2", os.fsencode(target), MNT_DETACH, subject=target)


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
    return _set_up_or_raise("open_tree", AT_FDCWD, os.fsencode(path), flags, subject=path)


def add_mount_attributes(descriptor: int, attributes: int, *, idmap: int | None = None) -> None:
    """Add attributes to a mount and all below it; none is ever taken away."""
    if idmap is not None:
        attributes |= _MOUNT_ATTR_IDMAP
    packed = struct.pack("=QQQQ", attributes, 0, 0, idmap or 0)
    flags = AT_RECURSIVE | AT_EMPTY_PATH
    _set_up_or_raise("mount_setattr", descriptor, b"", flags, packed, len(packed))


def attach_mount(descriptor: int, target: str) -> None:
    place = (AT_FDCWD, os.fsencode(target), MOVE_MOUNT_F_EMPTY_PATH)
    _set_up_or_raise("move_mount", descriptor, b"", *place, subject=target)


def packet_socket(kind: int, filter_program: bytes) -> int:
    """An AF_PACKET socket; the kernel copies the filter, an array of struct sock_filter, and checks it."""
    descriptor = _set_up_or_raise("socket", _AF_PACKET, kind, 0)
    instructions = ctypes.create_string_buffer(filter_program, len(filter_program))
    header = struct.pack("@HP", len(filter_program) // 8, ctypes.addressof(instructions))
    try:
        _set_up_or_raise("setsockopt", descriptor, _SOL_SOCKET, _SO_ATTACH_FILTER, header, len(header))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def route_socket(kind: int) -> int:
    """An AF_NETLINK socket for routes and devices."""
    return _set_up_or_raise("socket", _AF_NETLINK, kind, 0)


def install_filter(address: int, instructions: int) -> None:
    """Installs a seccomp filter, an array of struct sock_filter, for this process and all that it starts."""
    header = struct.pack("@HP", instructions, address)
    _prctl(PR_SET_SECCOMP, "PR_SET_SECCOMP", SECCOMP_MODE_FILTER, header)


def map_memory(size: int) -> int:
    """The address of new memory that is ours alone."""
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = libc.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_WRITE, private, -1, ctypes.c_long(0))
    return _check(-1 if address == _MAP_FAILED else address, "mmap")


def make_executable(address: int, size: int) -> None:
    executable = mmap.PROT_READ | mmap.PROT_EXEC
    _check(libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), executable), "mprotect(PROT_EXEC)")


def unmap_memory(address: int, size: int) -> None:
    _check(libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size)), "munmap")


def fill_with_randomness(address: int, size: int) -> None:
    """By the kernel itself: the C library may have a generator of its own, with memory of its own."""
    filled = _syscall(_SYS_GETRANDOM[_MACHINE], "getrandom", ctypes.c_void_p(address), size, 0)
    if filled != size:
        raise OSError(errno.EIO, f"getrandom: {filled} bytes of {size}")


def _prctl(option: int, call: str, *arguments: object) -> None:
    widened = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in (*arguments, 0, 0, 0, 0)[:4]]
    _check(libc.prctl(option, *widened), f"prctl({call})")


def die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, "PR_SET_PDEATHSIG", 9)


def set_option(option: int, value: int) -> None:
    """Sets an option of prctl that is a number, for this process."""
    _prctl(option, str(option), value)


def landlock_ruleset(attributes: bytes) -> int:
    return _syscall(SYS_LANDLOCK_CREATE_RULESET, "landlock_create_ruleset", attributes, len(attributes), 0)


def landlock_allow(ruleset: int, rule: bytes) -> None:
    _syscall(SYS_LANDLOCK_ADD_RULE, "landlock_add_rule", ruleset, LANDLOCK_RULE_PATH_BENEATH, rule, 0)


def landlock_restrict(ruleset: int) -> None:
    _syscall(SYS_LANDLOCK_RESTRICT_SELF, "landlock_restrict_self", ruleset, 0)


def set_dumpable(dumpable: bool) -> None:
    """Sets the dumpable flag. A process without it cannot be traced, and no user inside owns its /proc entries."""
    _prctl(PR_SET_DUMPABLE, "PR_SET_DUMPABLE", int(dumpable))


def reset_signal(number: int) -> None:
    """Resets a signal by system call, since the C library does not reset the two that it reserves."""
    default = bytes(32)
    _syscall(_SYS_RT_SIGACTION[_MACHINE], "rt_sigaction", number, default, None, 8)


def rename_process(words: list[str]) -> None:
    """Overwrite the command line that /proc shows, which names the descriptors that we were started with."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as stream:
        fields = stream.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    shown = b"".join(os.fsencode(word) + b"\0" for word in words)
    # SAFETY: these are the addresses of our own argument strings, as the kernel keeps them; the length never grows.
    ctypes.memmove(start, shown[: end - start].ljust(end - start, b"\0"), end - start)
