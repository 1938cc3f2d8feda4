"""The seccomp filter that sandboxed code runs under, as a program for the kernel.

Owns which system calls are allowed (`profile`, `arguments`), their numbers (`numbers_*`) and the way from rules to
instructions (`decisions` -> `compiler` -> `bpf`). It computes bytes and makes no system call: the process that
drops its privileges loads the filter. Must not know policies; the filter is the same for every sandbox.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

from ...contract.syscalls.decisions import KILL_PROCESS
from ...contract.syscalls.profile import ABSENT, SET_UP, SET_UP_IN_PART, decisions, gated, own_process_only
from . import numbers_aarch64, numbers_x86_64
from .compiler import Segment, compile_filter, segments


class _Architecture(NamedTuple):
    audit: int  # AUDIT_ARCH_* of linux/audit.h
    numbers: Mapping[str, int]
    beyond: tuple[Segment, ...] = ()  # what follows the numbers of the table


_ARCHITECTURES = {
    "x86_64": _Architecture(
        0xC000_003E,
        numbers_x86_64.NUMBERS,
        # x32 is a second set of calls under the same architecture, which nothing needs. The upper half is negative
        # numbers, no calls at all: programs probe with -1 and get the answer of an unknown call.
        (Segment(0x4000_0000, KILL_PROCESS), Segment(0x8000_0000, ABSENT)),
    ),
    "aarch64": _Architecture(0xC000_00B7, numbers_aarch64.NUMBERS),
}


def build_filter(
    machine: str,
    *,
    is_shared: bool = False,
    executes_files_only: bool = False,
    absent: Iterable[str] = (),
    is_gated: bool = False,
) -> bytes:
    """The filter for a machine named as in os.uname(), as an array of struct sock_filter.

    Shared: for a process namespace in which there are others of the same user, whose limits are not the program's.
    Files only: nothing can be executed from memory, which has no path that a policy could allow.
    Absent: calls that there are not to be, although the profile has them.
    Gated: calls that set up a run are open to a caller with a secret, which has to be put into `secret_places`.
    """
    audit, numbers, beyond = _architecture(machine)
    decided = {**decisions(numbers), **(own_process_only(numbers) if is_shared else {})}
    withheld = (*absent, *(("memfd_create",) if executes_files_only else ()))
    decided |= {numbers[name]: ABSENT for name in withheld}
    table = {**decided, **(gated(numbers, decided) if is_gated else {})}
    return compile_filter(audit, [*segments(table, ABSENT), *beyond])


@cache
def set_up_numbers(machine: str) -> dict[str, int]:
    """The calls that can be gated."""
    numbers = _architecture(machine).numbers
    return {name: numbers[name] for name in (*SET_UP, *SET_UP_IN_PART)}


def _architecture(machine: str) -> _Architecture:
    if machine not in _ARCHITECTURES:
        raise ValueError(f"no seccomp filter for machine {machine!r}: supported are {', '.join(_ARCHITECTURES)}")
    return _ARCHITECTURES[machine]
