"""Uses of ordinary calls that reach past the sandbox: host-wide pools, other writers of a file, the crash handler.

No namespace and no limit of a run covers these, so that the filter has to look at the arguments. The constants are
kernel ABI, equal on every supported architecture.
"""

import errno

from .decisions import ALLOW, WORD, Decision, SyscallCheck, fail_with

_EPERM = fail_with(errno.EPERM)
_UNKNOWN = fail_with(errno.EINVAL)
# As on a machine that has no huge page left. They come from one pool of the host, which no memory limit counts.
_NO_HUGE_PAGES = fail_with(errno.ENOMEM)
_DONE = fail_with(0)

_MAP_HUGETLB = 0x4_0000
_SHM_HUGETLB = 0o4000
_MFD_ORDINARY = 0x1 | 0x2 | 0x8 | 0x10  # CLOEXEC, ALLOW_SEALING, NOEXEC_SEAL, EXEC

# Left out: F_SETLEASE makes processes on the host that open the file wait, F_NOTIFY and F_SETDELEG watch it like
# inotify does, without its limits.
_FCNTL_COMMANDS = (
    *(0, 1, 2, 3, 4),  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL
    *(5, 6, 7, 36, 37, 38),  # F_GETLK, F_SETLK, F_SETLKW, and the same for open file descriptions
    *(8, 9, 10, 11, 15, 16, 17),  # F_SETOWN, F_GETOWN, F_SETSIG, F_GETSIG, F_SETOWN_EX, F_GETOWN_EX, F_GETOWNER_UIDS
    *(1025, 1027, 1028, 1030),  # F_GETLEASE, F_DUPFD_QUERY, F_CREATED_QUERY, F_DUPFD_CLOEXEC
    *(1031, 1032, 1033, 1034),  # F_SETPIPE_SZ, F_GETPIPE_SZ, F_ADD_SEALS, F_GET_SEALS
    *(1035, 1036, 1037, 1038),  # F_GET_RW_HINT, F_SET_RW_HINT, F_GET_FILE_RW_HINT, F_SET_FILE_RW_HINT
)

_RENAME_ORDINARY = 0x1 | 0x2  # NOREPLACE, EXCHANGE; WHITEOUT makes a device node, also where there are to be none

_PRIO_PROCESS, _PRIO_PGRP = 0, 1
_IOPRIO_PROCESS, _IOPRIO_PGRP = 1, 2

_RLIMITS_BUT_CORE = (*range(4), *range(5, 16))  # RLIMIT_CORE is 4

NO_HUGE_MAPPING = SyscallCheck(
    3, (0,), ALLOW, _NO_HUGE_PAGES, mask=_MAP_HUGETLB
)  # mmap(addr, length, prot, flags, ...)
NO_HUGE_SEGMENT = SyscallCheck(2, (0,), ALLOW, _NO_HUGE_PAGES, mask=_SHM_HUGETLB)  # shmget(key, size, int flags)
ORDINARY_MEMORY_FILE = SyscallCheck(
    1, (0,), ALLOW, _UNKNOWN, mask=WORD & ~_MFD_ORDINARY
)  # memfd_create(name, unsigned flags)
KNOWN_FCNTL = SyscallCheck(1, _FCNTL_COMMANDS, ALLOW, _UNKNOWN)  # fcntl(unsigned fd, unsigned command, ...)
ORDINARY_RENAME = SyscallCheck(
    4, (0,), ALLOW, _UNKNOWN, mask=WORD & ~_RENAME_ORDINARY
)  # renameat2(..., unsigned flags)


def priority_of_processes(permitted: Decision = ALLOW) -> SyscallCheck:
    """setpriority(int which, int who, ...): by user it would reach every process that has the same."""
    return SyscallCheck(0, (_PRIO_PROCESS, _PRIO_PGRP), permitted, _EPERM)


def disk_priority_of_processes(permitted: Decision = ALLOW) -> SyscallCheck:
    """ioprio_set(int which, int who, ...)"""
    return SyscallCheck(0, (_IOPRIO_PROCESS, _IOPRIO_PGRP), permitted, _EPERM)


def limits_but_core(resource: int) -> SyscallCheck:
    """`resource` is the index of an unsigned int. RLIMIT_CORE stays 1, which is less than 0 to a piped core handler.

    Programs that want no core file set it to 0. The call returns success: they get no core file anyway.
    """
    return SyscallCheck(resource, _RLIMITS_BUT_CORE, ALLOW, _DONE)


def reading_limits_or_setting(pointer: int, resource: int) -> SyscallCheck:
    """prlimit64: with a null pointer, in both its halves, nothing is set."""
    setting = limits_but_core(resource)
    return SyscallCheck(pointer, (0,), SyscallCheck(pointer, (0,), ALLOW, setting, is_upper_half=True), setting)
