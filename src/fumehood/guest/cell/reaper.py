"""Process 1 of a run: a program of seventy bytes that collects orphans and does nothing else.

The kernel gives every process whose parent has died to process 1 of its namespace, and ends the namespace with it. That
takes no more than `while True: wait4(-1)`, with a short sleep while there is no child to wait for. An interpreter for
this would cost more than the rest of a run, so it is written in machine code, in the smallest file that the kernel
executes. It reads nothing, writes nothing and holds no descriptor.
"""

from __future__ import annotations

import struct

_SLEEP = struct.pack("<QQ", 0, 20_000_000)  # 20 ms, as seconds and nanoseconds

_CODE = {
    "x86_64": (
        62,
        bytes.fromhex(
            "bf04000000"  #           mov edi, 4        PR_SET_DUMPABLE
            "31f6"  #                 xor esi, esi      off: no user owns its files in /proc
            "b89d000000"  #           mov eax, 157      prctl
            "0f05"  #                 syscall
            "48c7c7ffffffff"  # again: mov rdi, -1       any child
            "31f6"  #                 xor esi, esi      no status wanted
            "31d2"  #                 xor edx, edx      no options: wait
            "4531d2"  #               xor r10d, r10d    no usage wanted
            "b83d000000"  #           mov eax, 61       wait4
            "0f05"  #                 syscall
            "85c0"  #                 test eax, eax
            "79e7"  #                 jns again         one collected: look for more
            "488d3d0b000000"  #       lea rdi, [rip+11] the time to sleep
            "31f6"  #                 xor esi, esi
            "b823000000"  #           mov eax, 35       nanosleep
            "0f05"  #                 syscall
            "ebd5"  #                 jmp again
        ),
    ),
    "aarch64": (
        183,
        bytes.fromhex(
            "800080d2"  #        mov x0, #4       PR_SET_DUMPABLE
            "010080d2"  #        mov x1, #0       off: no user owns its files in /proc
            "e81480d2"  #        mov x8, #167     prctl
            "010000d4"  #        svc #0
            "00008092"  # again: mov x0, #-1      any child
            "010080d2"  #        mov x1, #0       no status wanted
            "020080d2"  #        mov x2, #0       no options: wait
            "030080d2"  #        mov x3, #0       no usage wanted
            "882080d2"  #        mov x8, #260     wait4
            "010000d4"  #        svc #0
            "40ffffb6"  #        tbz x0, #63, again
            "a0000010"  #        adr x0, sleep
            "010080d2"  #        mov x1, #0
            "a80c80d2"  #        mov x8, #101     nanosleep
            "010000d4"  #        svc #0
            "f5ffff17"  #        b again
        ),
    ),
}
_HEADER_BYTES = 64 + 56
_LOAD_ADDRESS = 0x400000
_READ_EXECUTE = 5


def executable(machine: str) -> bytes:
    """An ELF file with one segment: header and code together, readable and executable, never writable."""
    architecture, code = _CODE[machine]
    size = _HEADER_BYTES + len(code) + len(_SLEEP)
    entry = _LOAD_ADDRESS + _HEADER_BYTES
    identity = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    header = struct.pack("<16sHHIQQQIHHHHHH", identity, 2, architecture, 1, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, _READ_EXECUTE, 0, _LOAD_ADDRESS, _LOAD_ADDRESS, size, size, 0x1000)
    return header + segment + code + _SLEEP
