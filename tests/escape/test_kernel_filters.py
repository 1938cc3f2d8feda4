"""Programs for the kernel: having it compile what no limit of the sandbox counts, until the host is out of memory.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| a filter on a socket (`SOCKET_PROGRAMS`) | seccomp: only harmless socket options exist | `seccomp` |
| a filter of system calls | seccomp: no further filters | `seccomp` |
| kernel memory behind other options (`UNCOUNTED`) | seccomp: only harmless options exist | `seccomp` |

One filter is enough to see whether it can be had. NEVER do it in a loop: freeing thousands of filters at once has been
seen to stop a kernel for good.
"""

from __future__ import annotations

import pytest

from escape.laboratory import attack, number_of
from fumehood import AsyncSandbox

pytestmark = pytest.mark.anyio

# One instruction that lets everything pass, as struct sock_fprog.
ONE_FILTER = """
    instruction = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
    one_filter = struct.pack("@HP", 1, ctypes.addressof(instruction))
"""

SOCKET_PROGRAMS = {
    "a filter": (26, "one_filter"),
    "a loaded program": (50, "bytes(4)"),
    "a filter that chooses among listeners": (51, "one_filter"),
    "a loaded program that chooses among listeners": (52, "bytes(4)"),
}

UNCOUNTED = {
    "IPv4 multicast groups": "(socket.AF_INET, 0, 35, bytes([224, 0, 0, 9, 127, 0, 0, 1]))",
    "IPv4 multicast groups by the newer call": "(socket.AF_INET, 0, 42, struct.pack('=II', 1, 0) + group)",
    "IPv6 multicast groups": "(socket.AF_INET6, 41, 20, bytes([255, 1, *bytes(13), 9]) + struct.pack('=I', 1))",
    "IPv6 flow labels": "(socket.AF_INET6, 41, 32, bytes(15) + b'\\1' + bytes([0, 0, 0, 1, 0, 255, 1, 0]) + bytes(8))",
    "IP options": "(socket.AF_INET, 0, 4, bytes([1] * 40))",
    "memory ahead of time": "(socket.AF_INET, 1, 73, struct.pack('=i', 1 << 20))",
    "TCP keys": "(socket.AF_INET, 6, 14, struct.pack('=H', 2) + bytes(214))",
}


@pytest.mark.parametrize(("option", "value"), SOCKET_PROGRAMS.values(), ids=SOCKET_PROGRAMS)
async def test_a_socket_takes_no_program_for_the_kernel(sandbox: AsyncSandbox, option: int, value: str) -> None:
    code = f"""{ONE_FILTER}
    line = socket.socket(type=socket.SOCK_DGRAM)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    found = outcome(lambda: line.setsockopt(socket.SOL_SOCKET, option, {value}))
    """
    assert await attack(sandbox, code, option=option) == "ENOPROTOOPT"


@pytest.mark.parametrize("option", [26 | 1 << 32, 26 | 1 << 63])
async def test_upper_bits_do_not_hide_a_socket_option(sandbox: AsyncSandbox, option: int) -> None:
    code = f"""{ONE_FILTER}
    line = socket.socket(type=socket.SOCK_DGRAM)
    found = outcome(lambda: call(number, line.fileno(), 1, option, one_filter, len(one_filter)))
    """
    assert await attack(sandbox, code, option=option, number=number_of("setsockopt")) == "ENOPROTOOPT"


@pytest.mark.parametrize("kind", ["AF_UNIX", "AF_INET6"])
async def test_no_kind_of_socket_takes_a_filter(sandbox: AsyncSandbox, kind: str) -> None:
    code = f"""{ONE_FILTER}
    line = socket.socket(getattr(socket, kind), socket.SOCK_DGRAM)
    found = outcome(lambda: line.setsockopt(socket.SOL_SOCKET, 26, one_filter))
    """
    assert await attack(sandbox, code, kind=kind) == "ENOPROTOOPT"


async def test_a_program_cannot_have_its_own_filter_by_prctl(sandbox: AsyncSandbox) -> None:
    code = f"{ONE_FILTER}\n    found = outcome(lambda: call(number, 22, 2, one_filter, 0, 0))"
    assert await attack(sandbox, code, number=number_of("prctl")) == "EINVAL"


@pytest.mark.parametrize("flags", [0, 1, 8])
async def test_a_program_cannot_have_its_own_filter_by_seccomp(sandbox: AsyncSandbox, flags: int) -> None:
    code = f"{ONE_FILTER}\n    found = outcome(lambda: call(number, 1, flags, one_filter))"
    assert await attack(sandbox, code, flags=flags, number=number_of("seccomp")) == "ENOSYS"


@pytest.mark.parametrize("arguments", UNCOUNTED.values(), ids=UNCOUNTED)
async def test_no_limit_is_passed_by_kernel_memory_for(sandbox: AsyncSandbox, arguments: str) -> None:
    code = f"""
    group = struct.pack('=HH4s120x', socket.AF_INET, 0, bytes([224, 0, 0, 9]))
    family, *rest = {arguments}
    line = socket.socket(family, socket.SOCK_STREAM if rest[0] == 6 else socket.SOCK_DGRAM)
    found = outcome(lambda: line.setsockopt(*rest))
    """
    assert await attack(sandbox, code) == "ENOPROTOOPT"
