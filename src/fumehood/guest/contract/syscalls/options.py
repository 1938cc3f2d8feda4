"""Socket options and process options (prctl) that are known to be harmless; all others do not exist for sandboxed code.

What is left out either makes the kernel compile a program (SO_ATTACH_*, PR_SET_SECCOMP), keeps kernel memory that no
limit of the sandbox counts (multicast groups, flow labels, TCP keys, names of memory areas), reaches for others
(PR_SCHED_CORE, SO_MARK), or is kernel code that has no use on a loopback device (TCP_ULP, UDP_ENCAP, XFRM policies).
A refusal is the answer of a kernel that was built without the option, which programs have to expect.

The constants are kernel ABI, equal on every supported architecture.
"""

import errno

from .decisions import ALLOW, Decision, SyscallCheck, fail_with

_SOL_IP, _SOL_SOCKET, _SOL_TCP, _SOL_UDP, _SOL_IPV6 = 0, 1, 6, 17, 41

_SOCKET_OPTIONS = {
    _SOL_SOCKET: {
        "REUSEADDR": 2, "DONTROUTE": 5, "BROADCAST": 6, "SNDBUF": 7, "RCVBUF": 8, "KEEPALIVE": 9, "OOBINLINE": 10,
        "NO_CHECK": 11, "PRIORITY": 12, "LINGER": 13, "BSDCOMPAT": 14, "REUSEPORT": 15, "PASSCRED": 16,
        "RCVLOWAT": 18, "RCVTIMEO": 20, "SNDTIMEO": 21, "BINDTODEVICE": 25, "DETACH_FILTER": 27, "TIMESTAMP": 29,
        "PASSSEC": 34, "TIMESTAMPNS": 35, "TIMESTAMPING": 37, "RXQ_OVFL": 40, "PEEK_OFF": 42, "SELECT_ERR_QUEUE": 45,
        "MAX_PACING_RATE": 47, "BINDTOIFINDEX": 62, "TIMESTAMP_NEW": 63, "TIMESTAMPNS_NEW": 64,
        "TIMESTAMPING_NEW": 65, "RCVTIMEO_NEW": 66, "SNDTIMEO_NEW": 67, "PASSPIDFD": 76, "PASSRIGHTS": 83,
    },
    _SOL_TCP: {
        "NODELAY": 1, "MAXSEG": 2, "CORK": 3, "KEEPIDLE": 4, "KEEPINTVL": 5, "KEEPCNT": 6, "SYNCNT": 7, "LINGER2": 8,
        "DEFER_ACCEPT": 9, "WINDOW_CLAMP": 10, "QUICKACK": 12, "CONGESTION": 13, "THIN_LINEAR_TIMEOUTS": 16,
        "THIN_DUPACK": 17, "USER_TIMEOUT": 18, "FASTOPEN": 23, "NOTSENT_LOWAT": 25, "FASTOPEN_CONNECT": 30, "INQ": 36,
    },
    _SOL_IP: {
        "TOS": 1, "TTL": 2, "RECVOPTS": 6, "RETOPTS": 7, "PKTINFO": 8, "MTU_DISCOVER": 10, "RECVERR": 11,
        "RECVTTL": 12, "RECVTOS": 13, "FREEBIND": 15, "RECVORIGDSTADDR": 20, "MINTTL": 21, "BIND_ADDRESS_NO_PORT": 24,
        "MULTICAST_IF": 32, "MULTICAST_TTL": 33, "MULTICAST_LOOP": 34, "MULTICAST_ALL": 49, "UNICAST_IF": 50,
        "LOCAL_PORT_RANGE": 51,
    },
    _SOL_IPV6: {
        "UNICAST_HOPS": 16, "MULTICAST_IF": 17, "MULTICAST_HOPS": 18, "MULTICAST_LOOP": 19, "MTU_DISCOVER": 23,
        "MTU": 24, "RECVERR": 25, "V6ONLY": 26, "MULTICAST_ALL": 29, "RECVPKTINFO": 49, "RECVHOPLIMIT": 51,
        "RECVPATHMTU": 60, "DONTFRAG": 62, "RECVTCLASS": 66, "TCLASS": 67, "AUTOFLOWLABEL": 70,
        "ADDR_PREFERENCES": 72, "MINHOPCOUNT": 73, "RECVORIGDSTADDR": 74, "UNICAST_IF": 76, "FREEBIND": 78,
    },
    _SOL_UDP: {
        "CORK": 1, "NO_CHECK6_TX": 101, "NO_CHECK6_RX": 102, "SEGMENT": 103, "GRO": 104,
    },
}  # fmt: skip

_PROCESS_OPTIONS = {
    "SET_PDEATHSIG": 1, "GET_PDEATHSIG": 2, "GET_DUMPABLE": 3, "SET_DUMPABLE": 4, "GET_KEEPCAPS": 7,
    "SET_KEEPCAPS": 8, "GET_TIMING": 13, "SET_TIMING": 14, "SET_NAME": 15, "GET_NAME": 16, "GET_SECCOMP": 21,
    "CAPBSET_READ": 23, "CAPBSET_DROP": 24, "GET_TSC": 25, "SET_TSC": 26, "GET_SECUREBITS": 27, "SET_SECUREBITS": 28,
    "SET_TIMERSLACK": 29, "GET_TIMERSLACK": 30, "MCE_KILL": 33, "MCE_KILL_GET": 34, "SET_CHILD_SUBREAPER": 36,
    "GET_CHILD_SUBREAPER": 37, "SET_NO_NEW_PRIVS": 38, "GET_NO_NEW_PRIVS": 39, "GET_TID_ADDRESS": 40,
    "SET_THP_DISABLE": 41, "GET_THP_DISABLE": 42, "CAP_AMBIENT": 47, "SVE_SET_VL": 50, "SVE_GET_VL": 51,
    "GET_SPECULATION_CTRL": 52, "SET_SPECULATION_CTRL": 53, "PAC_RESET_KEYS": 54, "SET_TAGGED_ADDR_CTRL": 55,
    "GET_TAGGED_ADDR_CTRL": 56, "PAC_SET_ENABLED_KEYS": 60, "PAC_GET_ENABLED_KEYS": 61, "SME_SET_VL": 63,
    "SME_GET_VL": 64, "SET_MDWE": 65, "GET_MDWE": 66, "GET_AUXV": 0x4155_5856,
}  # fmt: skip


def _known_socket_options() -> Decision:
    """The check of setsockopt(int fd, int level, int name, ...)."""
    decision: Decision = _NO_SUCH_OPTION
    for level, names in _SOCKET_OPTIONS.items():
        decision = SyscallCheck(1, (level,), SyscallCheck(2, tuple(names.values()), ALLOW, _NO_SUCH_OPTION), decision)
    return decision


_NO_SUCH_OPTION = fail_with(errno.ENOPROTOOPT)
KNOWN_SOCKET_OPTIONS = _known_socket_options()
KNOWN_PROCESS_OPTIONS = SyscallCheck(
    0, tuple(_PROCESS_OPTIONS.values()), ALLOW, fail_with(errno.EINVAL)
)  # prctl(int, ...)
