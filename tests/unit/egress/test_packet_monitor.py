"""What is made of the packets that a packet monitor sees: whatever a program sends, it is read without harm."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.egress.packet_monitor import BlockedPacket, parse_packet


def packet(protocol: int, rest: bytes, *, fragment: int = 0, options: bytes = b"") -> bytes:
    length = 5 + len(options) // 4
    destination = bytes([203, 0, 113, 9])
    layout = "!BBHHHBBH4s4s"
    fixed = struct.pack(layout, 0x40 | length, 0, 0, 0, fragment, 64, protocol, 0, bytes(4), destination)
    return fixed + options + rest


def tcp(flags: int, port: int = 444) -> bytes:
    return struct.pack("!HHIIBBHHH", 40_000, port, 0, 0, 0x50, flags, 0, 0, 0)


UDP = struct.pack("!HHHH", 40_000, 443, 9, 0) + b"x"
PING = bytes([8, 0, 0, 0, 0, 1, 0, 1])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (packet(6, tcp(0x02)), BlockedPacket("connect", "203.0.113.9", 444)),
        (packet(6, tcp(0x02), options=bytes(8)), BlockedPacket("connect", "203.0.113.9", 444)),
        (packet(6, tcp(0xC2)), BlockedPacket("connect", "203.0.113.9", 444)),
        (packet(6, tcp(0x12)), None),
        (packet(6, tcp(0x10)), None),
        (packet(6, tcp(0x02), fragment=1), None),
        (packet(6, tcp(0x02, 0)), None),
        (packet(17, UDP), BlockedPacket("udp", "203.0.113.9", 443)),
        (packet(17, UDP, fragment=0x2000), BlockedPacket("udp", "203.0.113.9", 443)),
        (packet(1, PING), BlockedPacket("icmp", "203.0.113.9")),
        (packet(1, bytes(8)), None),
        (packet(132, bytes(8)), None),
        (packet(17, UDP)[:24], None),
        (b"\x60" + bytes(60), None),
        (b"\x41" + bytes(60), None),
        (b"", None),
    ],
)
def test_a_packet_is_an_attempt_or_nothing(data: bytes, expected: BlockedPacket | None) -> None:
    assert parse_packet(data) == expected


@given(st.binary(max_size=80))
def test_nothing_that_arrives_does_harm(data: bytes) -> None:
    found = parse_packet(data)
    assert found is None or 0 <= found.port < 65536
