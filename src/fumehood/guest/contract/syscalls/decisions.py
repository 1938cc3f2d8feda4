"""What a filter can answer for one system call: a verdict, or a check of one argument that leads to further decisions.

Plain values without behaviour: the profile writes them, the compiler turns them into instructions.
"""

from typing import NamedTuple

WORD = 0xFFFF_FFFF


class SyscallAction(NamedTuple):
    """A final answer, as the SECCOMP_RET_* value that the filter returns."""

    value: int


class SyscallCheck(NamedTuple):
    """Whether the low 32 bits of an argument, masked, are one of `values`.

    The high 32 bits are looked at for pointers alone. The kernel uses them in none of the other arguments that the
    profile checks: those are int, unsigned int or umode_t, or flags that all lie in the low half. A caller may leave
    anything in the upper half of the register, so a check that compared all of it could be passed by setting an upper
    bit.
    """

    argument: int
    values: tuple[int, ...]
    then: "Decision"
    otherwise: "Decision"
    mask: int = WORD
    is_upper_half: bool = False


Decision = SyscallAction | SyscallCheck


class Gated(NamedTuple):
    """`then` decides for calls with the secret of 64 bits in the sixth argument, and `otherwise` for all others.

    No call with a sixth argument of its own can be gated.
    """

    then: Decision
    otherwise: Decision


ALLOW = SyscallAction(0x7FFF_0000)
KILL_PROCESS = SyscallAction(0x8000_0000)


def fail_with(error: int) -> SyscallAction:
    """The call is not made and returns `error`; 0 makes it look done."""
    return SyscallAction(0x0005_0000 | error)
