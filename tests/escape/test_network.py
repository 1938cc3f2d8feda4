"""Network: reaching the host, its network, or another sandbox.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| the host's loopback, devices, routes | network namespace with a loopback device alone | `network-namespace` |
| the host's name servers and names | synthetic /etc | `synthetic-etc` |
| unusual kinds of sockets | seccomp | `seccomp`, for those that this kernel has |
| administering the network | no capabilities in the namespace's user namespace | `real-root` |

Addresses outside are only looked up in the routing table: connecting a datagram socket sends nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from escape.laboratory import attack
from fumehood import AsyncSandbox

pytestmark = pytest.mark.anyio

LOOPBACKS = {"IPv4": (socket.AF_INET, "127.0.0.1"), "IPv6": (socket.AF_INET6, "::1")}


@pytest.fixture(params=LOOPBACKS.values(), ids=LOOPBACKS)
def host_listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family, address = request.param
    with socket.socket(family) as listener:
        try:
            listener.bind((address, 0))
        except OSError:
            pytest.skip(f"the host has no {address}")
        listener.listen()
        yield listener


async def test_a_listener_on_the_hosts_loopback_cannot_be_reached(
    sandbox: AsyncSandbox, host_listener: socket.socket
) -> None:
    code = "found = outcome(lambda: socket.create_connection(address, 1))"
    assert await attack(sandbox, code, address=host_listener.getsockname()[:2]) == "ECONNREFUSED"


async def test_a_listener_of_the_host_is_not_listed(sandbox: AsyncSandbox, host_listener: socket.socket) -> None:
    code = """
        found = [int(line.split()[1].rpartition(":")[2], 16) for table in ("tcp", "tcp6")
                 for line in open(f"/proc/net/{table}").readlines()[1:]]
    """
    assert host_listener.getsockname()[1] not in await attack(sandbox, code)


async def test_a_datagram_socket_of_the_host_cannot_be_reached(sandbox: AsyncSandbox) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.setblocking(False)
        code = "found = outcome(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', address))"
        assert await attack(sandbox, code, address=listener.getsockname()) == "GOT 1"
        with pytest.raises(BlockingIOError):
            listener.recv(1)


OUTSIDE = {
    "the internet": "203.0.113.10",
    "the metadata service": "169.254.169.254",
    "a private network": "10.99.0.1",
    "a container network": "172.17.0.1",
    "a carrier's network": "100.64.0.1",
    "everybody": "255.255.255.255",
    "a group": "224.0.0.251",
    "the internet by IPv6": "2001:db8::10",
    "the metadata service by IPv6": "fd00:ec2::254",
}


@pytest.mark.parametrize("address", OUTSIDE.values(), ids=OUTSIDE)
async def test_there_is_no_route_to(sandbox: AsyncSandbox, address: str) -> None:
    code = """
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        seeker = socket.socket(family, socket.SOCK_DGRAM)
        seeker.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        found = outcome(lambda: seeker.connect((address, 80)))
    """
    assert await attack(sandbox, code, address=address) in ("ENETUNREACH", "EADDRNOTAVAIL")


async def test_the_loopback_is_the_only_device(sandbox: AsyncSandbox) -> None:
    code = """
        lines = open("/proc/net/dev").readlines()[2:]
        plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        by_number = [outcome(lambda: fcntl.ioctl(plain, 0x8910, struct.pack("16xi20x", index))) for index in (2, 3, 4)]
        found = [by_number, [line.split(":")[0].strip() for line in lines]]
    """
    assert await attack(sandbox, code) == [["ENODEV"] * 3, ["lo"]]


async def test_the_routing_table_is_empty(sandbox: AsyncSandbox) -> None:
    assert await attack(sandbox, "found = open('/proc/net/route').readlines()[1:]") == []


async def test_names_cannot_be_resolved(sandbox: AsyncSandbox) -> None:
    code = """
        try:
            found = repr(socket.getaddrinfo("example.com", 80))
        except socket.gaierror as error:
            found = error.errno
    """
    assert await attack(sandbox, code) in (socket.EAI_AGAIN, socket.EAI_NONAME)


async def test_the_hosts_name_servers_are_unknown(sandbox: AsyncSandbox) -> None:
    found = await attack(sandbox, "found = open('/etc/resolv.conf').read().split()")
    assert "nameserver" not in found


SOCKETS = {
    "packets": "17, 3, 0x300",
    "packets by their old name": "2, 10, 0x300",
    "raw IPv4": "2, 3, 1",
    "raw IPv6": "10, 3, 58",
    "any protocol": "2, 3, 255",
    "virtual machines": "40, 1, 0",
    "kernel cryptography": "38, 5, 0",
    "Bluetooth": "31, 3, 1",
    "express data path": "44, 3, 0",
    "IPsec keys": "15, 3, 2",
    "CAN bus": "29, 3, 1",
    "TIPC": "30, 1, 0",
    "RDS": "21, 5, 0",
    "SMC": "43, 1, 0",
    "SCTP": "2, 1, 132",
    "multipath TCP": "2, 1, 262",
    "UDP-Lite": "2, 2, 136",
    "DCCP": "2, 6, 33",
    "kernel connection multiplexor": "41, 5, 0",
    "netlink of netfilter": "16, 3, 12",
    "netlink of audit": "16, 3, 9",
    "netlink of devices": "16, 3, 15",
    "netlink of everything else": "16, 3, 16",
    "netlink of socket diagnosis": "16, 3, 4",
    "netlink of IPsec": "16, 3, 6",
}


@pytest.mark.every_parameter
@pytest.mark.parametrize("arguments", SOCKETS.values(), ids=SOCKETS)
async def test_there_are_no_sockets_for(sandbox: AsyncSandbox, arguments: str) -> None:
    found = await attack(sandbox, f"found = outcome(lambda: socket.socket({arguments}))")
    assert found in ("EPERM", "EAFNOSUPPORT", "EPROTONOSUPPORT")


ADMINISTRATION = {
    "an address": "fcntl.ioctl(plain, 0x8916, b'lo'.ljust(16, b'\\0') + struct.pack('HH4s16x', 2, 0, address))",
    "a device's state": "fcntl.ioctl(plain, 0x8914, b'lo'.ljust(16, b'\\0') + struct.pack('H22x', 0x49))",
    "a device's name": "fcntl.ioctl(plain, 0x8923, b'lo'.ljust(16, b'\\0') + b'evil'.ljust(16, b'\\0'))",
    "a device's hardware address": "fcntl.ioctl(plain, 0x8924, b'lo'.ljust(16, b'\\0') + struct.pack('H22x', 772))",
    "a bridge": "fcntl.ioctl(plain, 0x89a0, b'evil'.ljust(16, b'\\0'))",
    "a device by netlink": "ask(16, struct.pack('BxHiII', 0, 0, 0, 1, 1))",
    "an address by netlink": "ask(20, struct.pack('BBBBI', 2, 8, 0, 0, 1) + struct.pack('HH4s', 8, 2, address))",
    "a route by netlink": "ask(24, struct.pack('8BI', 2, 0, 0, 0, 254, 4, 0, 1, 0) + struct.pack('HHI', 8, 4, 1))",
    "a queueing discipline by netlink": "ask(36, struct.pack('BxxxiIII', 0, 1, 0, 0xFFFFFFFF, 0))",
    "the packet filter": "plain.setsockopt(0, 64, bytes(92))",
    "transparent proxying": "plain.setsockopt(0, 19, 1)",
    "packet marks": "plain.setsockopt(1, 36, 1)",
    "priorities above the rest": "plain.setsockopt(1, 12, 7)",
    "buffers above the limit": "plain.setsockopt(1, 33, 1 << 30)",
    "repairing connections": "socket.socket().setsockopt(6, 19, 1)",
    "a privileged port": "socket.socket().bind(('127.0.0.1', 53))",
    "the namespace of a socket": "fcntl.ioctl(plain, 0x894c)",
}


@pytest.mark.every_parameter
@pytest.mark.parametrize("code", ADMINISTRATION.values(), ids=ADMINISTRATION)
async def test_the_network_cannot_be_administered_by(sandbox: AsyncSandbox, code: str) -> None:
    tools = """
        plain, address = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), bytes([10, 9, 8, 7])


        def ask(kind, body):
            netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
            netlink.sendto(struct.pack("IHHII", 16 + len(body), kind, 0x605, 1, 0) + body, (0, 0))
            number = struct.unpack_from("i", netlink.recv(65536), 16)[0]
            if number:
                raise OSError(-number, "")
    """
    found = await attack(sandbox, f"{tools}\n        found = outcome(lambda: {code})")
    assert found in ("EPERM", "EACCES", "ENOPROTOOPT", "EAFNOSUPPORT")
