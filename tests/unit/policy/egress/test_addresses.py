"""Which addresses are the public internet, and which are not."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.policy.egress import Reach, classify


@pytest.mark.parametrize(
    ("text", "reach"),
    [
        *(
            (text, Reach.PUBLIC)
            for text in ("8.8.8.8", "1.1.1.1", "2606:4700::1", "64:ff9b::808:808", "::ffff:8.8.8.8")
        ),
        *((text, Reach.PRIVATE) for text in ("10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fd00::1")),
        *((text, Reach.PRIVATE) for text in ("127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1")),
        *((text, Reach.PRIVATE) for text in ("100.64.0.1", "198.18.0.1", "203.0.113.1")),
        *((text, Reach.PRIVATE) for text in ("64:ff9b::a00:1", "64:ff9b:1::1", "fec0::1", "2001:db8::1")),
        *((text, Reach.METADATA) for text in ("169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe")),
        *(
            (text, Reach.METADATA)
            for text in ("fd00:ec2::254", "fd00:ec2::254%1", "100.100.100.200", "192.0.0.192", "168.63.129.16")
        ),
        *(
            (text, Reach.METADATA)
            for text in ("169.254.1.1", "169.254.42.42", "169.254.129.2", "169.254.100.1", "fe80::1")
        ),
        *(
            (text, Reach.METADATA)
            for text in ("fd00:42::42", "fd00:a9fe:a9fe::1", "fd00:c1::a9fe:a9fe", "fe80::a9fe:a9fe")
        ),
        *((text, Reach.METADATA) for text in ("64:ff9b:1::a9fe:a9fe", "64:ff9b:1:a9fe:a9:fe00::")),
        *((text, Reach.METADATA) for text in ("64:ff9b:1:a9:fe:a9fe::", "64:ff9b:1:0:a9:fea9:fe00:0")),
        *((text, Reach.NEVER) for text in ("0.0.0.0", "0.1.2.3", "255.255.255.255", "224.0.0.1", "240.0.0.1", "::")),
        *((text, Reach.NEVER) for text in ("ff02::1", "2002:a00:1::1", "2001:0:a::1", "::10.0.0.1", "192.0.0.8")),
        *((text, Reach.NEVER) for text in ("4000::1", "1::1", "100::1")),
    ],
)
def test_an_address_has_its_reach(text: str, reach: Reach) -> None:
    assert classify(ip_address(text))[0] is reach


@given(st.ip_addresses())
def test_nothing_is_public_that_the_standard_library_does_not_call_so(address: IPv4Address | IPv6Address) -> None:
    if classify(address)[0] is Reach.PUBLIC and address.version == 4:
        assert address.is_global


@given(st.ip_addresses(v=4))
def test_an_address_in_other_clothes_is_no_more_public(address: IPv4Address) -> None:
    reach, _ = classify(address)
    number = int(address)
    for clothes in (f"::ffff:0:0|{number}", f"64:ff9b::|{number}"):
        prefix, _, value = clothes.partition("|")
        assert classify(IPv6Address(int(IPv6Address(prefix)) + int(value)))[0] is reach
    for tunnel in (IPv6Address((0x2002 << 112) + (number << 80)), IPv6Address((0x2001_0000 << 96) + number)):
        assert classify(tunnel)[0] is Reach.NEVER
