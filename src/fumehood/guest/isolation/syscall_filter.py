"""Puts this process and all that it starts under a filter of system calls."""

from __future__ import annotations

import ctypes

from . import kernel
from .gate import SyscallGate
from .seccomp.compiler import secret_places

_INSTRUCTION_BYTES = 8


def install_filter(program: bytes, gate: SyscallGate | None = None) -> None:
    """`program` is an array of struct sock_filter. With a gate, its secret is what opens the gated calls."""
    places = list(secret_places(program))
    if bool(places) != (gate is not None):
        raise ValueError("a filter has gated calls if and only if there is a gate to them")
    address = kernel.map_memory(len(program))
    # SAFETY: all that is written is inside of the memory that was just mapped.
    ctypes.memmove(address, program, len(program))
    if gate is not None:
        for in_program, in_secret, size in places:
            ctypes.memmove(address + in_program, gate.secret_address + in_secret, size)
    kernel.install_filter(address, len(program) // _INSTRUCTION_BYTES)
    kernel.unmap_memory(address, len(program))
