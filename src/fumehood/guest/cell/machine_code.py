"""Two programs of a few dozen bytes each, in the smallest file that the kernel executes.

An interpreter in their place would keep megabytes of memory, and cost more than the rest of a run.

The reaper is process 1 of a run. The kernel gives every process whose parent has died to process 1 of its namespace,
and ends the namespace with it. The reaper ignores SIGCHLD, with which the kernel buries such children by itself, and
sleeps. It reads nothing, writes nothing and holds no descriptor.

The waiter is the process that the host has started, once the cell is its child: it waits for the cell and ends with
its exit code.
"""

from __future__ import annotations

import struct

_SIGNAL_IGNORED = struct.pack("<QQQQ", 1, 0, 0, 0)  # struct sigaction: SIG_IGN, no flags, no restorer, no mask

REAPER = {
    "x86_64": bytes.fromhex(
        "bf04000000"  #           mov edi, 4        PR_SET_DUMPABLE
        "31f6"  #                 xor esi, esi      off: no user owns its files in /proc
        "b89d000000"  #           mov eax, 157      prctl
        "0f05"  #                 syscall
        "bf11000000"  #           mov edi, 17       SIGCHLD
        "488d3518000000"  #       lea rsi, [rip+24] behind the code: ignored
        "31d2"  #                 xor edx, edx      what it was before is not wanted
        "41ba08000000"  #         mov r10d, 8       bytes of a mask
        "b80d000000"  #           mov eax, 13       rt_sigaction
        "0f05"  #                 syscall
        "b822000000"  # again:    mov eax, 34       pause
        "0f05"  #                 syscall
        "ebf7"  #                 jmp again
    )
    + _SIGNAL_IGNORED,
    "aarch64": bytes.fromhex(
        "800080d2"  #        mov x0, #4       PR_SET_DUMPABLE
        "010080d2"  #        mov x1, #0       off: no user owns its files in /proc
        "e81480d2"  #        mov x8, #167     prctl
        "010000d4"  #        svc #0
        "200280d2"  #        mov x0, #17      SIGCHLD
        "81010010"  #        adr x1, +48      behind the code: ignored
        "020080d2"  #        mov x2, #0       what it was before is not wanted
        "030180d2"  #        mov x3, #8       bytes of a mask
        "c81080d2"  #        mov x8, #134     rt_sigaction
        "010000d4"  #        svc #0
        "000080d2"  # again: mov x0, #0       no descriptors
        "010080d2"  #        mov x1, #0
        "020080d2"  #        mov x2, #0       no end of time
        "030080d2"  #        mov x3, #0       no other mask
        "280980d2"  #        mov x8, #73      ppoll
        "010000d4"  #        svc #0
        "faffff17"  #        b again
    )
    + _SIGNAL_IGNORED,
}
WAITER = {
    "x86_64": bytes.fromhex(
        "48c7c7ffffffff"  #       mov rdi, -1       the only child
        "488d7424f8"  #           lea rsi, [rsp-8]  where its status goes
        "31d2"  #                 xor edx, edx      no options: wait
        "4531d2"  #               xor r10d, r10d    no usage wanted
        "b83d000000"  #           mov eax, 61       wait4
        "0f05"  #                 syscall
        "8b7c24f8"  #             mov edi, [rsp-8]
        "89f8"  #                 mov eax, edi
        "c1e808"  #               shr eax, 8        its exit code, or 0 ...
        "09c7"  #                 or edi, eax       ... and then the number of a signal
        "b8e7000000"  #           mov eax, 231      exit_group
        "0f05"  #                 syscall
    ),
    "aarch64": bytes.fromhex(
        "00008092"  #        mov x0, #-1         the only child
        "e14300d1"  #        sub x1, sp, #16     where its status goes
        "020080d2"  #        mov x2, #0          no options: wait
        "030080d2"  #        mov x3, #0          no usage wanted
        "882080d2"  #        mov x8, #260        wait4
        "010000d4"  #        svc #0
        "e0035fb8"  #        ldur w0, [sp, #-16]
        "0020402a"  #        orr w0, w0, w0, lsr #8   its exit code, or the number of a signal
        "c80b80d2"  #        mov x8, #94         exit_group
        "010000d4"  #        svc #0
    ),
}
_ARCHITECTURES = {"x86_64": 62, "aarch64": 183}
_HEADER_BYTES = 64 + 56
_LOAD_ADDRESS = 0x400000
_READ_EXECUTE = 5


def executable(machine: str, code: dict[str, bytes]) -> bytes:
    """An ELF file with one segment: header and code together, readable and executable, never writable."""
    size = _HEADER_BYTES + len(code[machine])
    entry = _LOAD_ADDRESS + _HEADER_BYTES
    identity = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    kind = (2, _ARCHITECTURES[machine], 1)
    header = struct.pack("<16sHHIQQQIHHHHHH", identity, *kind, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, _READ_EXECUTE, 0, _LOAD_ADDRESS, _LOAD_ADDRESS, size, size, 0x1000)
    return header + segment + code[machine]
