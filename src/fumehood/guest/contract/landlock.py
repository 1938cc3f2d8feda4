"""Which version of Landlock this kernel has."""

from __future__ import annotations

import ctypes

_SYS_LANDLOCK_CREATE_RULESET = 444
_ONLY_THE_VERSION = 1


def landlock_abi() -> int:
    """0 without Landlock."""
    libc = ctypes.CDLL(None)
    libc.syscall.restype = ctypes.c_long
    number = ctypes.c_long(_SYS_LANDLOCK_CREATE_RULESET)
    return max(0, libc.syscall(number, None, ctypes.c_long(0), ctypes.c_long(_ONLY_THE_VERSION)))
