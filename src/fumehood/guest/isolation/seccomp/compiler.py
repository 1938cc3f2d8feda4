"""Turns decisions by system call number into a seccomp filter program.

Owns the shape of the program: check the architecture, search the number, check arguments, answer. Knows no system call
by name.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...contract.syscalls.decisions import KILL_PROCESS, WORD, Decision, Gated, SyscallAction
from .bpf import AT_LEAST, EQUAL, SOCK_FILTER, XOR, BpfProgram, Position

# struct seccomp_data: int nr; u32 arch; u64 instruction_pointer; u64 args[6]. Both supported machines are
# little-endian, so the low half of an argument comes first.
_NUMBER_OFFSET = 0
_ARCHITECTURE_OFFSET = 4
_ARGUMENTS_OFFSET = 16
_SECRET_OFFSET = _ARGUMENTS_OFFSET + 8 * 5
_HALF_BYTES = 4
_OPERAND_OFFSET = 4  # of the operand in a struct sock_filter


class Segment(NamedTuple):
    """A run of numbers with one decision: from `first` up to where the next segment begins."""

    first: int
    decision: Decision | Gated


def segments(decisions: Mapping[int, Decision | Gated], default: Decision) -> list[Segment]:
    """Cut the numbers from 0 upwards into the fewest segments; numbers without a decision get the default."""
    found = [Segment(0, decisions.get(0, default))]
    edges = {edge for number in decisions for edge in (number, number + 1)}
    for number in sorted(edges):
        decision = decisions.get(number, default)
        if decision != found[-1].decision:
            found.append(Segment(number, decision))
    return found


def compile_filter(audit_architecture: int, parts: Sequence[Segment]) -> bytes:
    """The program as an array of struct sock_filter. A call of another architecture kills the process.

    Numbers mean other calls on another architecture, so nothing else may be looked at before that.
    """
    compiler = _Compiler()
    kill = compiler.decision(KILL_PROCESS)
    search = compiler.program.load(_NUMBER_OFFSET, compiler.search(parts))
    architecture = compiler.program.branch(EQUAL, audit_architecture, search, kill)
    compiler.program.load(_ARCHITECTURE_OFFSET, architecture)
    return compiler.program.to_bytes()


class SecretPlace(NamedTuple):
    """Where one half of the secret belongs."""

    in_program: int
    in_secret: int
    size: int


def secret_places(program: bytes) -> Iterator[SecretPlace]:
    """A filter is compiled with zeros there: the secret itself never passes through our hands."""
    loaded = 0
    for index, (code, _, _, operand) in enumerate(SOCK_FILTER.iter_unpack(program)):
        if code == XOR:
            yield SecretPlace(index * SOCK_FILTER.size + _OPERAND_OFFSET, loaded - _SECRET_OFFSET, _HALF_BYTES)
        loaded = operand


class _Compiler:
    def __init__(self) -> None:
        self.program = BpfProgram()
        self._positions: dict[Decision | Gated, Position] = {}

    def decision(self, decision: Decision | Gated) -> Position:
        """Equal decisions share their instructions, which keeps the program small."""
        if decision not in self._positions:
            self._positions[decision] = self._emit(decision)
        return self._positions[decision]

    def search(self, parts: Sequence[Segment]) -> Position:
        """A binary search over the segments, with the number in the accumulator."""
        if len(parts) == 1:
            return self.decision(parts[0].decision)
        middle = len(parts) // 2
        upper, lower = self.search(parts[middle:]), self.search(parts[:middle])
        return self.program.branch(AT_LEAST, parts[middle].first, upper, lower)

    def _emit(self, decision: Decision | Gated) -> Position:
        if isinstance(decision, SyscallAction):
            return self.program.ret(decision.value)
        if isinstance(decision, Gated):
            return self._emit_gated(decision)
        then, position = self.decision(decision.then), self.decision(decision.otherwise)
        for value in reversed(decision.values):
            position = self.program.branch(EQUAL, value, then, position)
        if decision.mask != WORD:
            position = self.program.mask(decision.mask, position)
        half = 4 if decision.is_upper_half else 0
        return self.program.load(_ARGUMENTS_OFFSET + 8 * decision.argument + half, position)

    def _emit_gated(self, decision: Gated) -> Position:
        """Both halves are compared before anything is decided: the time it takes tells nothing about either of them."""
        program = self.program
        position = program.branch(EQUAL, 0, self.decision(decision.then), self.decision(decision.otherwise))
        position = program.xor(0, program.or_with_index(position))
        position = program.to_index(program.load(_SECRET_OFFSET + _HALF_BYTES, position))
        return program.load(_SECRET_OFFSET, program.xor(0, position))
