"""System calls as data: a list that is prepared once and carried out in the process of every run.

After a fork each page of memory that Python touches has to be copied, and ordinary code touches hundreds. Going through
a prepared list touches few, and none if machine code does it. It also makes the order of a run's isolation something
that can be read and tested.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from .call_table import CallTable, has_machine_code
from .kernel import libc, set_up_function
from .seccomp import set_up_numbers
from .steps import StepError

_MOST_NUMBERS = 256


class PlannedCall(NamedTuple):
    step: str
    name: str
    function: Callable[..., int]
    arguments: tuple[Any, ...]
    result: ctypes.c_int | None
    """Where the call's result goes, for later calls that name it as an argument."""
    sets_up: bool
    """Then the kernel's own result is what it returns: an error is a negative number."""


class IsolationPlan:
    """Grows call by call, each under the name of the step it belongs to."""

    def __init__(self) -> None:
        self._calls: list[PlannedCall] = []
        self._kept: list[object] = []
        self._step = ""
        self._table: CallTable | None = None
        # Results of calls, side by side: a number that is an object of its own costs a page of memory in every run.
        self._numbers = (ctypes.c_int * _MOST_NUMBERS)()
        self._numbers_used = 0
        self._set_up_numbers = set_up_numbers(os.uname().machine)

    def step(self, name: str) -> None:
        self._step = name

    def call(self, function: str, *arguments: Any, result: ctypes.c_int | None = None) -> None:
        """`function` of the C library. Text becomes a path, whole numbers a machine word, the rest goes as it is.

        What sets up a run goes through the cell's gate, whether it is named or called by its number.
        """
        by_number = function == "syscall"
        number = arguments[0] if by_number else self._set_up_numbers.get(function)
        sets_up = number in self._set_up_numbers.values()
        if sets_up and not by_number:
            arguments = (number, *arguments)
        converted = tuple(_converted(argument) for argument in arguments)
        target = set_up_function() if sets_up else getattr(libc, function)
        self._calls.append(PlannedCall(self._step, function, target, converted, result, sets_up))

    def number(self) -> ctypes.c_int:
        """A place for the result of a call, or for a number that is filled in later."""
        if self._numbers_used == _MOST_NUMBERS:
            return ctypes.c_int()
        self._numbers_used += 1
        return ctypes.c_int.from_buffer(self._numbers, ctypes.sizeof(ctypes.c_int) * (self._numbers_used - 1))

    def write_file(self, path: str, text: str) -> None:
        descriptor, data = self.number(), text.encode()
        self.call("open", path, os.O_WRONLY | os.O_CLOEXEC, result=descriptor)
        self.call("write", descriptor, data, len(data))
        self.call("close", descriptor)

    def keep(self, *memory: object) -> None:
        """What a call only points at has to live as long as the plan."""
        self._kept.extend(memory)

    def steps(self) -> list[str]:
        return list(dict.fromkeys(call.step for call in self._calls))

    def compile(self) -> None:
        """The list is complete: machine code carries it out from here on, if there is some for this machine."""
        if has_machine_code():
            self._table = CallTable([(call.function, call.arguments, call.result) for call in self._calls])

    def carry_out(self) -> None:
        if self._table is None:
            self._call_one_by_one()
        elif failure := self._table.execute():
            raise _failure(self._calls[failure.place], failure.result)

    def _call_one_by_one(self) -> None:
        for call in self._calls:
            value = call.function(*call.arguments)
            if value < 0:
                raise _failure(call, value)
            if call.result is not None:
                call.result.value = value


def _failure(call: PlannedCall, value: int) -> StepError:
    error = -value if call.sets_up else ctypes.get_errno()
    return StepError(call.step, f"{call.name}: {os.strerror(error)}")


def _converted(argument: Any) -> Any:
    if isinstance(argument, int):
        return ctypes.c_long(argument)
    return os.fsencode(argument) if isinstance(argument, str) else argument
