"""What kind of place an address is: the public internet, somewhere private, or nowhere that a program has business.

Owns a table of its own, because what the standard library calls global has changed between versions of Python.
"""

from __future__ import annotations

from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address


class Reach(Enum):
    """What a rule must say before the gateway connects to an address."""

    PUBLIC = "nothing more"
    PRIVATE = "private: true"
    METADATA = "this very address, and private: true"
    NEVER = "nothing would do"


# Where clouds hand out the machine's own credentials. Every other link-local address may be such a place as well.
# A name that leads here is an attack, whatever its rule says.
_METADATA = frozenset(
    ip_address(text)
    for text in (
        *("169.254.169.254", "169.254.169.253", "169.254.169.123", "169.254.170.2", "169.254.170.23", "169.254.0.23"),
        *("100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254", "fd00:ec2::253", "fd00:ec2::123"),
        *("fd00:ec2::23", "fd20:ce::254", "fd00:42::42", "fd00:a9fe:a9fe::1", "fd00:c1::a9fe:a9fe"),
    )
)
_KINDS: tuple[tuple[str, Reach, tuple[str, ...]], ...] = (
    ("this host", Reach.NEVER, ("0.0.0.0/8", "::/128")),
    ("broadcast", Reach.NEVER, ("255.255.255.255/32",)),
    ("multicast", Reach.NEVER, ("224.0.0.0/4", "ff00::/8")),
    ("reserved", Reach.NEVER, ("240.0.0.0/4", "192.0.0.0/24", "192.88.99.0/24", "100::/64", "5f00::/16")),
    ("a tunnel", Reach.NEVER, ("2001::/32", "2002::/16", "::/96", "::ffff:0:0:0/96")),
    ("loopback", Reach.PRIVATE, ("127.0.0.0/8", "::1/128")),
    ("link-local", Reach.METADATA, ("169.254.0.0/16", "fe80::/10")),
    ("private", Reach.PRIVATE, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10")),
    ("private", Reach.PRIVATE, ("64:ff9b:1::/48",)),
    ("a provider's inside", Reach.PRIVATE, ("100.64.0.0/10",)),
    ("for benchmarks", Reach.PRIVATE, ("198.18.0.0/15", "2001:2::/48")),
    ("for documentation", Reach.PRIVATE, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")),
    ("for documentation", Reach.PRIVATE, ("2001:db8::/32", "3fff::/20")),
    ("reserved", Reach.NEVER, ("2001::/23",)),
)
_BLOCKS: tuple[tuple[IPv4Network | IPv6Network, str, Reach], ...] = tuple(
    # The most exact block speaks: ::1 is loopback although it lies in ::/96.
    sorted(
        ((ip_network(block), kind, reach) for kind, reach, blocks in _KINDS for block in blocks),
        key=lambda entry: -entry[0].prefixlen,
    )
)
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
# Which bytes are the IPv4 address there is up to its operator (RFC 6052, 2.2): after 96, 64, 56 or 48 bits.
_EMBEDDINGS = ((12, 13, 14, 15), (9, 10, 11, 12), (7, 9, 10, 11), (6, 7, 9, 10))


def plain(address: Address) -> Address:
    """The address that the network sees: an IPv4 address in IPv6 clothes is an IPv4 address."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFF_FFFF)
        return IPv6Address(int(address))  # without its scope, which is the host's own affair
    return address


def classify(address: Address) -> tuple[Reach, str]:
    """What a rule must say, and the kind of the address in words."""
    seen = plain(address)
    if seen in _METADATA or (seen in _LOCAL_NAT64 and _may_hold_metadata(seen)):
        return Reach.METADATA, "where clouds keep credentials"
    for block, kind, reach in _BLOCKS:
        if seen in block:
            return reach, kind
    if isinstance(seen, IPv6Address) and seen not in _GLOBAL_UNICAST:
        return Reach.NEVER, "reserved"
    return Reach.PUBLIC, "public"


def _may_hold_metadata(address: Address) -> bool:
    found = (IPv4Address(bytes(address.packed[place] for place in places)) for places in _EMBEDDINGS)
    return any(classify(each)[0] is Reach.METADATA for each in found)
