"""Decisions that depend on a call's arguments: which use of an otherwise ordinary call is refused.

The constants are kernel ABI, equal on every supported architecture. They are spelled out because the standard library
has only some of them, and importing `socket` for a few numbers costs more than the whole filter.
"""

import errno

from .decisions import ALLOW, Decision, SyscallCheck, fail_with

REFUSE = fail_with(errno.EPERM)

# clone(unsigned long flags, ...): every namespace flag is in the low half. CLONE_NEWTIME is left out on purpose: its
# bit belongs to the exit signal here, and only clone3 and unshare know it as a flag.
_NEW_NAMESPACES = (
    0x0002_0000  # CLONE_NEWNS
    | 0x0200_0000  # CLONE_NEWCGROUP
    | 0x0400_0000  # CLONE_NEWUTS
    | 0x0800_0000  # CLONE_NEWIPC
    | 0x1000_0000  # CLONE_NEWUSER
    | 0x2000_0000  # CLONE_NEWPID
    | 0x4000_0000  # CLONE_NEWNET
)
# CLONE_PARENT: the child would be the cell's, which waits only for its own. The kernel keeps a process
# namespace until every process in it is buried, so one such child would hold up the end of its run for ever.
_SIBLING = 0x0000_8000

_SET_ID_BITS = 0o6000  # S_ISUID | S_ISGID
_FILE_TYPE_BITS = 0o170000  # S_IFMT
_PLAIN_FILE_TYPES = (0, 0o100000, 0o010000, 0o140000)  # none (means regular), S_IFREG, S_IFIFO, S_IFSOCK

# The kernel reads the mode of an open only with one of these. __O_TMPFILE is the one bit of O_TMPFILE that is its own.
_O_CREAT_OR_TMPFILE = 0o100 | 0o20000000

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK, _AF_PACKET = 1, 2, 10, 16, 17
_SOL_SOCKET, _SO_ATTACH_FILTER = 1, 26
_SOCK_TYPE_BITS = 0xF  # the rest is SOCK_CLOEXEC and SOCK_NONBLOCK
_SOCK_STREAM, _SOCK_DGRAM = 1, 2
_IP_PROTOCOLS = (0, 1, 6, 17, 58)  # the type's own, ICMP, TCP, UDP, ICMPv6

_TERMINAL_TAKEOVERS = (
    0x5412,  # TIOCSTI: types into a terminal that others read
    0x541C,  # TIOCLINUX: pastes into it
    0x541D,  # TIOCCONS: takes the console's output
    0x5423,  # TIOCSETD: loads line disciplines, old and little-tested kernel code
)

# PER_LINUX and PER_LINUX32, each also with UNAME26, and the query. Nothing that weakens address space layout
# randomisation or makes readable memory executable.
_PERSONALITIES = (0x0, 0x8, 0x2_0000, 0x2_0008, 0xFFFF_FFFF)


def without_set_id_bits(mode: int) -> SyscallCheck:
    """`mode` is the index of a umode_t argument. No file in a sandbox gets to run as another user."""
    return SyscallCheck(mode, (0,), ALLOW, REFUSE, mask=_SET_ID_BITS)


def creating_without_set_id_bits(flags: int) -> SyscallCheck:
    """The check of open and openat, where the mode follows the flags, and is undefined unless a file is created."""
    return SyscallCheck(flags, (0,), ALLOW, without_set_id_bits(flags + 1), mask=_O_CREAT_OR_TMPFILE)


def plain_files(mode: int) -> SyscallCheck:
    """The check of mknod: no devices, and no set-id bits; both are in the one umode_t."""
    return SyscallCheck(mode, _PLAIN_FILE_TYPES, ALLOW, REFUSE, mask=_FILE_TYPE_BITS | _SET_ID_BITS)


def _ordinary_sockets() -> Decision:
    """The check of socket and socketpair, whose three arguments are int: domain, type, protocol."""
    # Not netlink, which getifaddrs would use: what waits in such sockets counts against no limit.
    internet = SyscallCheck(0, (_AF_INET, _AF_INET6), _internet_sockets(), fail_with(errno.EAFNOSUPPORT))
    return SyscallCheck(0, (_AF_UNIX,), ALLOW, internet)


def _internet_sockets() -> Decision:
    """TCP, UDP and ping. SCTP, DCCP and MPTCP are much kernel code, loaded on demand, that nothing here can talk to.

    The type counts as well: it selects DCCP by itself, and AF_INET with SOCK_PACKET is another name for AF_PACKET.
    """
    protocol = SyscallCheck(2, _IP_PROTOCOLS, ALLOW, fail_with(errno.EPROTONOSUPPORT))
    return SyscallCheck(1, (_SOCK_STREAM, _SOCK_DGRAM), protocol, REFUSE, mask=_SOCK_TYPE_BITS)


def or_sockets_of_the_cell(others: Decision) -> SyscallCheck:
    """Allows the sockets with which a cell sets up and monitors the network of a run."""
    return SyscallCheck(0, (_AF_PACKET, _AF_NETLINK), ALLOW, others)


def or_packet_filter(others: Decision) -> SyscallCheck:
    return SyscallCheck(1, (_SOL_SOCKET,), SyscallCheck(2, (_SO_ATTACH_FILTER,), ALLOW, others), others)


SAME_NAMESPACES = SyscallCheck(0, (0,), ALLOW, REFUSE, mask=_NEW_NAMESPACES | _SIBLING)
ORDINARY_SOCKETS = _ordinary_sockets()
NO_TERMINAL_TAKEOVER = SyscallCheck(
    1, _TERMINAL_TAKEOVERS, REFUSE, ALLOW
)  # ioctl(unsigned int fd, unsigned int cmd, ...)
KNOWN_PERSONALITIES = SyscallCheck(0, _PERSONALITIES, ALLOW, REFUSE)  # personality(unsigned int)
ITSELF_AT_FIRST, ITSELF_AT_SECOND = (SyscallCheck(index, (0,), ALLOW, REFUSE) for index in (0, 1))  # a pid_t or int
