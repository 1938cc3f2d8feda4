"""A packet monitor: shows the host what a program sends where there is no listener, so that it becomes a denial.

A socket that gets a copy of some packets on the loopback device of the run's network namespace: beginnings of
connections, datagrams, pings. It changes nothing: the kernel refuses them by itself. As with the listeners, no process
inside has it. What a program sends to its own loopback addresses is not shown.
"""

from __future__ import annotations

import socket
import struct

from ..contract.limits import SHOWN_BYTES
from . import kernel

_DEVICE = "lo"
_ETH_P_IP = 0x0800

_WORD, _HALF, _BYTE, _BYTE_BEHIND_HEADER = 0x20, 0x28, 0x30, 0x50
_HEADER_LENGTH, _MASK, _IS, _HAS_BITS, _RETURN = 0xB1, 0x54, 0x15, 0x45, 0x06
# code, how many to skip if it holds, how many if not, operand
_PROGRAM = (
    (_WORD, 0, 0, 16),  #                  the destination
    (_MASK, 0, 0, 0xFF000000),
    (_IS, 0, 3, 0x7F000000),  #            loopback's own block? of that ...
    (_WORD, 0, 0, 16),
    (_MASK, 0, 0, 0xFFC00000),
    (_IS, 0, 14, 0x7F400000),  #           ... only what stands for names outside
    (_BYTE, 0, 0, 9),  #                   the protocol
    (_IS, 2, 0, 6),  #                     TCP
    (_IS, 10, 0, 17),  #                   UDP: every datagram
    (_IS, 6, 10, 1),  #                    ICMP, or nothing that could be sent
    (_HALF, 0, 0, 6),  #                   TCP: no later part of a packet in pieces
    (_HAS_BITS, 8, 0, 0x1FFF),
    (_HEADER_LENGTH, 0, 0, 0),
    (_BYTE_BEHIND_HEADER, 0, 0, 13),  #    SYN without ACK
    (_MASK, 0, 0, 0x12),
    (_IS, 3, 4, 0x02),
    (_HEADER_LENGTH, 0, 0, 0),  #          ICMP: an echo request
    (_BYTE_BEHIND_HEADER, 0, 0, 0),
    (_IS, 0, 1, 8),
    (_RETURN, 0, 0, SHOWN_BYTES),
    (_RETURN, 0, 0, 0),
)


def open_packet_monitor() -> socket.socket:
    """In the network namespace that is to be watched."""
    program = b"".join(struct.pack("=HBBI", *step) for step in _PROGRAM)
    line = socket.socket(fileno=kernel.packet_socket(socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, program))
    try:
        # Only now does anything arrive.
        line.bind((_DEVICE, _ETH_P_IP))
    except BaseException:
        line.close()
        raise
    return line
