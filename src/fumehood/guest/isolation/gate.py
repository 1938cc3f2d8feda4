"""How a cell sets up its runs under the filter that it shares with them: with a secret that no program ever sees.

The filter of a cell is installed once, in the cell, and every run inherits it by its birth. It allows the calls that
set up a run (`seccomp.profile.SET_UP`) only with a random number of 64 bits in an argument that they do not use. The
number is in one place of memory: a page that the kernel has filled, next to the few instructions that load it, make
the call and forget it. It is no object of Python's, never on the stack, and in a register only while the kernel works.
The cell has that page, and the process that forks its runs. A run gives it back before it sees any code, and then there
is no copy left in it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import NamedTuple

from . import kernel

_PAGE_BYTES = 4096
SECRET_BYTES = 8
# Called as a C function: the number of a system call, then up to five arguments. Returns what the kernel does.
CODE = {
    "x86_64": bytes.fromhex(
        "4889f8"  #             mov rax, rdi    the number
        "4889f7"  #             mov rdi, rsi
        "4889d6"  #             mov rsi, rdx
        "4889ca"  #             mov rdx, rcx
        "4d89c2"  #             mov r10, r8
        "4d89c8"  #             mov r8, r9
        "4c8b0d07000000"  #     mov r9, [rip+7] the secret, behind the code
        "0f05"  #               syscall
        "4531c9"  #             xor r9d, r9d
        "c3"  #                 ret
        "90"  #                 nop             so that the secret is aligned
    ),
    "aarch64": bytes.fromhex(
        "e80300aa"  #           mov x8, x0      the number
        "e00301aa"  #           mov x0, x1
        "e10302aa"  #           mov x1, x2
        "e20303aa"  #           mov x2, x3
        "e30304aa"  #           mov x3, x4
        "e40305aa"  #           mov x4, x5
        "85000058"  #           ldr x5, +16     the secret, behind the code
        "010000d4"  #           svc #0
        "e5031faa"  #           mov x5, xzr
        "c0035fd6"  #           ret
    ),
}


class Page(NamedTuple):
    address: int
    size: int


class SyscallGate:
    """Open in the cell and its template for as long as they live; a run closes its own by unmapping `page`."""

    def __init__(self) -> None:
        code = CODE[os.uname().machine]
        self.page = Page(kernel.map_memory(_PAGE_BYTES), _PAGE_BYTES)
        self.secret_address = self.page.address + len(code)
        # SAFETY: inside of the page that was just mapped.
        ctypes.memmove(self.page.address, code, len(code))
        kernel.fill_with_randomness(self.secret_address, SECRET_BYTES)
        kernel.make_executable(*self.page)
        self.call: Callable[..., int] = ctypes.CFUNCTYPE(ctypes.c_long)(self.page.address)
        """By the number of a system call. The result, or the error as a negative number."""
