"""System calls as data: a list that is prepared once and carried out in the process of every run.

After a fork each page of memory that Python touches has to be copied, and ordinary code touches hundreds. Going through
a prepared list touches few. It also makes the order of a run's isolation something that can be read and tested.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from .kernel import libc
from .steps import StepError


class Call(NamedTuple):
    step: str
    function: Callable[..., int]
    arguments: tuple[Any, ...]
    result: ctypes.c_int | None
    """Where the call's result goes, for later calls that name it as an argument."""


class Plan:
    """Grows call by call, each under the name of the step it belongs to."""

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._kept: list[object] = []
        self._step = ""

    def step(self, name: str) -> None:
        self._step = name

    def call(self, function: str, *arguments: Any, result: ctypes.c_int | None = None) -> None:
        """`function` of the C library. Text becomes a path, whole numbers a machine word, the rest goes as it is."""
        converted = tuple(_converted(argument) for argument in arguments)
        self._calls.append(Call(self._step, getattr(libc, function), converted, result))

    def write_file(self, path: str, text: str) -> None:
        descriptor, data = ctypes.c_int(), text.encode()
        self.call("open", path, os.O_WRONLY | os.O_CLOEXEC, result=descriptor)
        self.call("write", descriptor, data, len(data))
        self.call("close", descriptor)

    def keep(self, *memory: object) -> None:
        """What a call only points at has to live as long as the plan."""
        self._kept.extend(memory)

    def steps(self) -> list[str]:
        return list(dict.fromkeys(call.step for call in self._calls))

    def carry_out(self) -> None:
        for step, function, arguments, result in self._calls:
            value = function(*arguments)
            if value < 0:
                number = ctypes.get_errno()
                detail = f"{function.__name__}: {os.strerror(number)}"  # type: ignore[attr-defined]
                raise StepError(step, detail)
            if result is not None:
                result.value = value


def _converted(argument: Any) -> Any:
    if isinstance(argument, int):
        return ctypes.c_long(argument)
    return os.fsencode(argument) if isinstance(argument, str) else argument
