"""The two smallest programs, executed as the cell executes them."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fumehood.guest.cell.machine_code import REAPER, WAITER, executable

MACHINE = os.uname().machine


def execute(code: dict[str, bytes]) -> None:
    """In a forked child: never returns."""
    program = os.memfd_create("program", os.MFD_CLOEXEC)
    os.write(program, executable(MACHINE, code))
    os.execve(program, ["program"], {})


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (7, 7), (255, 255)])
def test_the_waiter_ends_as_its_child_does(status: int, expected: int) -> None:
    waiter = os.fork()
    if waiter == 0:
        if os.fork() == 0:
            os._exit(status)
        execute(WAITER)
    assert os.waitstatus_to_exitcode(os.waitpid(waiter, 0)[1]) == expected


def test_the_waiter_of_a_child_that_was_killed_does_not_end_well() -> None:
    waiter = os.fork()
    if waiter == 0:
        if (child := os.fork()) == 0:
            signal.pause()
        os.kill(child, signal.SIGKILL)
        execute(WAITER)
    assert os.waitstatus_to_exitcode(os.waitpid(waiter, 0)[1]) == signal.SIGKILL


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline


def ignores(process: int, number: int) -> bool:
    status = Path(f"/proc/{process}/status").read_text()
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(mask, 16) >> (number - 1) & 1)


def is_there(process_descriptor: int) -> bool:
    try:
        signal.pidfd_send_signal(process_descriptor, 0)
    except ProcessLookupError:
        return False
    return True


def test_children_of_the_reaper_leave_no_zombie_and_it_stays() -> None:
    read, write = os.pipe2(os.O_CLOEXEC)
    go, going = os.pipe2(os.O_CLOEXEC)
    reaper = os.fork()
    if reaper == 0:
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(go, 1)
            os._exit(3)
        os.write(write, str(child).encode())
        execute(REAPER)
    os.close(write)
    child = os.pidfd_open(int(os.read(read, 20)))
    assert os.read(read, 1) == b"", "the reaper is executed: its copy is closed"
    wait_until(lambda: ignores(reaper, signal.SIGCHLD))
    os.write(going, b"g")
    assert select.select([child], [], [], 30)[0]
    wait_until(lambda: not is_there(child))  # a zombie would stay
    assert os.waitpid(reaper, os.WNOHANG) == (0, 0)
    os.kill(reaper, signal.SIGKILL)
    os.waitpid(reaper, 0)
    for descriptor in (read, go, going, child):
        os.close(descriptor)
