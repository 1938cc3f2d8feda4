"""Puts a process and all that it starts under a filter of system calls, as a step of a plan."""

from __future__ import annotations

import ctypes

from . import kernel
from .plan import Plan


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def install_filter(plan: Plan, program: bytes) -> None:
    """`program` is an array of struct sock_filter."""
    instructions = ctypes.create_string_buffer(program, len(program))
    header = _FilterProgram(len(program) // 8, ctypes.cast(instructions, ctypes.c_void_p))
    plan.call("prctl", kernel.PR_SET_SECCOMP, kernel.SECCOMP_MODE_FILTER, ctypes.byref(header), 0, 0)
    plan.keep(instructions, header)
