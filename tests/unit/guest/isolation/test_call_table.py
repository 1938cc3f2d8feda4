"""The machine code that goes through a table of calls, on calls that can be seen to have been made."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from fumehood.guest.isolation.call_table import CODE, CallRow, CallTable, Failure
from fumehood.guest.isolation.kernel import libc
from fumehood.guest.isolation.plan import IsolationPlan
from fumehood.guest.isolation.steps import StepError


def words(*numbers: int) -> tuple[ctypes.c_long, ...]:
    return tuple(map(ctypes.c_long, numbers))


def test_arguments_arrive_in_their_order() -> None:
    seen: list[tuple[int, ...]] = []

    def note(*arguments: int) -> int:
        seen.append(arguments)
        return 0

    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_long] * 6)(note)
    assert CallTable([(function, words(1, -2, 2**40, 4, 5, 6), None)] * 2).execute() is None
    assert seen == [(1, -2, 2**40, 4, 5, 6)] * 2


def test_a_result_is_an_argument_of_later_calls(tmp_path: Path) -> None:
    descriptor, copy, path = ctypes.c_int(), ctypes.c_int(), os.fsencode(tmp_path / "made")
    table = CallTable(
        [
            (libc.open, (path, *words(os.O_CREAT | os.O_WRONLY, 0o600)), descriptor),
            (libc.dup, (descriptor,), copy),
            (libc.write, (copy, b"text", *words(4)), None),
            (libc.close, (descriptor,), None),
            (libc.dup2, (copy, descriptor), None),
            (libc.close, (copy,), None),
            (libc.close, (descriptor,), None),
        ]
    )
    for _ in range(2):
        assert table.execute() is None
    assert (tmp_path / "made").read_bytes() == b"text"


def test_the_first_call_that_fails_is_the_last_one() -> None:
    unwritten = ctypes.c_int(7)
    table = CallTable([(libc.getppid, (), None), (libc.close, words(-1), unwritten), (libc.abort, (), None)])
    assert table.execute() == Failure(1, -1)
    assert (ctypes.get_errno(), unwritten.value) == (errno.EBADF, 7)


def test_an_empty_table_is_no_failure() -> None:
    assert CallTable([]).execute() is None


@pytest.mark.parametrize("arguments", [words(*range(7)), (1.5,), (words(0)[0], words(0)[0], ctypes.c_int())])
def test_a_call_that_the_code_cannot_make_is_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((ValueError, TypeError, IndexError)):
        CallTable([(libc.getppid, arguments, None)])


def test_the_code_reads_rows_of_this_size() -> None:
    assert ctypes.sizeof(CallRow) == 80
    assert all(len(code) < 4096 for code in CODE.values())


def failing_plan() -> IsolationPlan:
    plan = IsolationPlan()
    plan.step("asking for the parent")
    plan.call("getppid")
    plan.step("opening what is not there")
    plan.call("open", "/nowhere/at all", os.O_RDONLY)
    return plan


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_plan_names_the_step_that_failed_and_why(is_compiled: bool) -> None:
    plan = failing_plan()
    if is_compiled:
        plan.compile()
    with pytest.raises(StepError, match="opening what is not there: open: No such file or directory"):
        plan.carry_out()
