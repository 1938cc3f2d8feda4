"""Packets that a program sent where there is no listener, parsed from the copies that the packet monitor of a run gets.

The kernel has refused them; they become denials. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Literal

_ICMP, _TCP, _UDP = 1, 6, 17
_ECHO_REQUEST = 8
_SYN, _ACK = 0x02, 0x10
_FRAGMENT_OFFSET = 0x1FFF
_SHORTEST_HEADER = 20


@dataclass(frozen=True, slots=True)
class BlockedPacket:
    """One attempt; a ping has no port."""

    kind: Literal["connect", "udp", "icmp"]
    address: str
    port: int = 0


def parse_packet(packet: bytes) -> BlockedPacket | None:
    """Parses the beginning of an IPv4 packet; None unless a program starts an exchange with it."""
    header = (packet[0] & 0x0F) * 4 if packet else 0
    if header < _SHORTEST_HEADER or packet[0] >> 4 != 4 or len(packet) < header + 8:
        return None
    if int.from_bytes(packet[6:8], "big") & _FRAGMENT_OFFSET:
        return None
    address, protocol, rest = str(IPv4Address(packet[16:20])), packet[9], packet[header:]
    port = int.from_bytes(rest[2:4], "big")
    if protocol == _TCP and len(rest) > 13 and rest[13] & (_SYN | _ACK) == _SYN and port:
        return BlockedPacket("connect", address, port)
    if protocol == _UDP and port:
        return BlockedPacket("udp", address, port)
    if protocol == _ICMP and rest[0] == _ECHO_REQUEST:
        return BlockedPacket("icmp", address)
    return None
