"""A table of calls, and the machine code that makes them one after the other.

Python needs as long for a call as the kernel does, and after a fork it copies memory with every object that it touches.
The code below touches its table and nothing else. It stops at the first call that fails.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from . import kernel

_MOST_ARGUMENTS = 6
_PAGE_BYTES = 4096
# Called as a C function with the address of the first row. Returns 0, or the address of the row whose call failed, with
# the call's result in the place of its first argument.
CODE = {
    "x86_64": bytes.fromhex(
        "53"  #                push rbx
        "4889fb"  #            mov rbx, rdi         the row
        "48833b00"  # again:   cmp qword [rbx], 0   without a function: the end
        "7451"  #              je done
        "488b7b08"  #          mov rdi, [rbx+8]     the arguments
        "488b7310"  #          mov rsi, [rbx+16]
        "488b5318"  #          mov rdx, [rbx+24]
        "488b4b20"  #          mov rcx, [rbx+32]
        "4c8b4328"  #          mov r8, [rbx+40]
        "4c8b4b30"  #          mov r9, [rbx+48]
        "488b4338"  #          mov rax, [rbx+56]    where the first one is, if it is the result of an earlier call
        "4885c0"  #            test rax, rax
        "7403"  #              je +3
        "486338"  #            movsxd rdi, dword [rax]
        "488b4340"  #          mov rax, [rbx+64]    where the second one is
        "4885c0"  #            test rax, rax
        "7403"  #              je +3
        "486330"  #            movsxd rsi, dword [rax]
        "31c0"  #              xor eax, eax         no argument is a floating point number
        "ff13"  #              call [rbx]
        "85c0"  #              test eax, eax
        "7811"  #              js failed
        "488b5348"  #          mov rdx, [rbx+72]    where the result goes
        "4885d2"  #            test rdx, rdx
        "7402"  #              je +2
        "8902"  #              mov [rdx], eax
        "4883c350"  #          add rbx, 80          the next row
        "ebb1"  #              jmp again
        "894308"  # failed:    mov [rbx+8], eax
        "4889d8"  #            mov rax, rbx
        "5b"  #                pop rbx
        "c3"  #                ret
        "31c0"  # done:        xor eax, eax
        "5b"  #                pop rbx
        "c3"  #                ret
    ),
    "aarch64": bytes.fromhex(
        "fd7bbea9"  #          stp x29, x30, [sp, #-32]!
        "fd030091"  #          mov x29, sp
        "f30b00f9"  #          str x19, [sp, #16]
        "f30300aa"  #          mov x19, x0          the row
        "690240f9"  # again:   ldr x9, [x19]
        "690200b4"  #          cbz x9, done         without a function: the end
        "608640a9"  #          ldp x0, x1, [x19, #8]    the arguments
        "628e41a9"  #          ldp x2, x3, [x19, #24]
        "649642a9"  #          ldp x4, x5, [x19, #40]
        "6aae43a9"  #          ldp x10, x11, [x19, #56] where the first two are, if they are results of earlier calls
        "4a0000b4"  #          cbz x10, +8
        "400180b9"  #          ldrsw x0, [x10]
        "4b0000b4"  #          cbz x11, +8
        "610180b9"  #          ldrsw x1, [x11]
        "20013fd6"  #          blr x9
        "c000f837"  #          tbnz w0, #31, failed
        "6a2640f9"  #          ldr x10, [x19, #72]  where the result goes
        "4a0000b4"  #          cbz x10, +8
        "400100b9"  #          str w0, [x10]
        "73420191"  #          add x19, x19, #80    the next row
        "f0ffff17"  #          b again
        "600a00b9"  # failed:  str w0, [x19, #8]
        "e00313aa"  #          mov x0, x19
        "02000014"  #          b end
        "e0031faa"  # done:    mov x0, xzr
        "f30b40f9"  # end:     ldr x19, [sp, #16]
        "fd7bc2a8"  #          ldp x29, x30, [sp], #32
        "c0035fd6"  #          ret
    ),
}


class Failure(NamedTuple):
    place: int
    """Which call of the table failed."""
    result: int
    """What it returned. The C library's own error number is in ctypes.get_errno()."""


class CallRow(ctypes.Structure):
    """One call, as the machine code reads it."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("arguments", ctypes.c_long * _MOST_ARGUMENTS),
        ("places", ctypes.c_void_p * 2),
        ("result", ctypes.c_void_p),
    )


class CallTable:
    """Made once from calls that are prepared for ctypes, and executed in the process of every run."""

    def __init__(self, calls: Sequence[tuple[Callable[..., int], tuple[Any, ...], ctypes.c_int | None]]) -> None:
        self._rows = (CallRow * (len(calls) + 1))()
        self._kept = calls
        for row, call in zip(self._rows, calls, strict=False):
            _fill(row, *call)
        self._run = _machine_code()

    def execute(self) -> Failure | None:
        failed: int | None = self._run(self._rows)
        if not failed:
            return None
        place = (failed - ctypes.addressof(self._rows)) // ctypes.sizeof(CallRow)
        return Failure(place, ctypes.c_int(self._rows[place].arguments[0]).value)


def has_machine_code() -> bool:
    return os.uname().machine in CODE


@cache
def _machine_code() -> Callable[..., int | None]:
    code = CODE[os.uname().machine]
    address = kernel.map_memory(_PAGE_BYTES)
    # SAFETY: inside of the page that was just mapped, which is never writable and executable at once.
    ctypes.memmove(address, code, len(code))
    kernel.make_executable(address, _PAGE_BYTES)
    return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, use_errno=True)(address)


def _fill(row: CallRow, function: Callable[..., int], arguments: tuple[Any, ...], result: ctypes.c_int | None) -> None:
    if len(arguments) > _MOST_ARGUMENTS:
        raise ValueError(f"a call of a table has at most {_MOST_ARGUMENTS} arguments, and not {len(arguments)}")
    row.function = ctypes.cast(function, ctypes.c_void_p)  # pyright: ignore[reportArgumentType]
    for number, argument in enumerate(arguments):
        if isinstance(argument, ctypes.c_int):
            row.places[number] = ctypes.addressof(argument)
        else:
            row.arguments[number] = _as_number(argument)
    row.result = None if result is None else ctypes.addressof(result)


def _as_number(argument: Any) -> int:
    """As ctypes passes it: a number, or the address of what is there."""
    match argument:
        case None:
            return 0
        case ctypes.c_long():
            return argument.value
        case ctypes.c_void_p():
            return argument.value or 0
        case bytes():
            return ctypes.cast(ctypes.c_char_p(argument), ctypes.c_void_p).value or 0
        case ctypes.Array():
            return ctypes.addressof(argument)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            raise TypeError(f"a call of a table cannot have a {type(argument).__name__} as an argument")
