"""A classic-BPF assembler, as small as seccomp needs.

It owns instruction encoding and jump distances and knows nothing of system calls. A program is written backwards, from
its last instruction to its first: classic BPF only jumps forward, so every target already has its place when the jump
to it is written, and distances need neither labels nor a second pass.
"""

import struct

EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K, unsigned

_LOAD_WORD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_AND = 0x54  # BPF_ALU | BPF_AND | BPF_K
XOR = 0xA4  # BPF_ALU | BPF_XOR | BPF_K
_OR_WITH_INDEX = 0x4C  # BPF_ALU | BPF_OR | BPF_X
_TO_INDEX = 0x07  # BPF_MISC | BPF_TAX
_JUMP_ALWAYS = 0x05  # BPF_JMP | BPF_JA
_RETURN = 0x06  # BPF_RET | BPF_K

SOCK_FILTER = struct.Struct("=HBBI")  # u16 code, u8 jt, u8 jf, u32 k

# A branch stores distances in 8 bits. One less than fits, because a detour for the first target moves the second away.
_BRANCH_REACH = 254

Position = int
"""A place in the program: the number of instructions from there to the end."""


class BpfProgram:
    """Instructions in reverse order; each method puts one in front of the rest and returns its position."""

    def __init__(self) -> None:
        self._reversed: list[bytes] = []

    def ret(self, value: int) -> Position:
        return self._put(_RETURN, value)

    def branch(self, test: int, operand: int, then: Position, otherwise: Position) -> Position:
        """Compare the accumulator with `operand` and go to one of two places, however far away."""
        otherwise = self._within_reach(otherwise)
        then = self._within_reach(then)
        return self._put(test, operand, self._distance(then), self._distance(otherwise))

    def load(self, offset: int, following: Position) -> Position:
        """Load the 32-bit word at `offset` of the input, then continue at `following`."""
        self._fall_through_to(following)
        return self._put(_LOAD_WORD, offset)

    def mask(self, bits: int, following: Position) -> Position:
        self._fall_through_to(following)
        return self._put(_AND, bits)

    def xor(self, bits: int, following: Position) -> Position:
        self._fall_through_to(following)
        return self._put(XOR, bits)

    def to_index(self, following: Position) -> Position:
        """Keep the accumulator in the index register."""
        self._fall_through_to(following)
        return self._put(_TO_INDEX, 0)

    def or_with_index(self, following: Position) -> Position:
        self._fall_through_to(following)
        return self._put(_OR_WITH_INDEX, 0)

    def to_bytes(self) -> bytes:
        """The array of struct sock_filter that the kernel takes."""
        return b"".join(reversed(self._reversed))

    def _put(self, code: int, operand: int, if_true: int = 0, if_false: int = 0) -> Position:
        self._reversed.append(SOCK_FILTER.pack(code, if_true, if_false, operand))
        return len(self._reversed)

    def _distance(self, target: Position) -> int:
        return len(self._reversed) - target

    def _within_reach(self, target: Position) -> Position:
        return target if self._distance(target) <= _BRANCH_REACH else self._detour(target)

    def _fall_through_to(self, target: Position) -> None:
        if self._distance(target) != 0:
            self._detour(target)

    def _detour(self, target: Position) -> Position:
        return self._put(_JUMP_ALWAYS, self._distance(target))
