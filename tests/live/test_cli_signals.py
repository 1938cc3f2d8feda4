"""Ctrl-C and other ways to ask `hood` to stop: it stops, says so, and leaves nothing behind."""

from __future__ import annotations

import fcntl
import signal
import struct
import termios

import pytest
from live.cli_host import (
    UP_AND_WAITING,
    assert_nothing_is_left,
    open_hood,
    open_terminal,
    wait_for_line,
)
from live.traces import descendants, is_alive, run_cgroups_of, wait_until

DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN)\n"


@pytest.mark.parametrize("program", [UP_AND_WAITING, DEAF + UP_AND_WAITING])
def test_ctrl_c_stops_the_run(program: str) -> None:
    with open_terminal("run", "-c", program) as terminal:
        terminal.wait_for(b"up\r\n")
        terminal.type(b"\x03")
        assert terminal.wait_for_end() == 130
        assert terminal.seen.endswith(b"^C\r\nhood: stopped by SIGINT\r\n")
    assert_nothing_is_left(terminal.process.pid)


def test_a_second_ctrl_c_changes_nothing() -> None:
    with open_terminal("run", "-c", UP_AND_WAITING) as terminal:
        terminal.wait_for(b"up\r\n")
        terminal.type(b"\x03\x03\x03")
        assert terminal.wait_for_end() == 130
        assert b"Traceback" not in terminal.seen
    assert_nothing_is_left(terminal.process.pid)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=lambda value: str(value),
)
def test_a_signal_stops_the_run(number: signal.Signals, code: int) -> None:
    with open_hood("run", "-c", UP_AND_WAITING) as process:
        wait_for_line(process.stdout, b"up\n")
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert (process.returncode, said) == (code, f"hood: stopped by {number.name}\n".encode())
    assert_nothing_is_left(process.pid)


def test_json_is_not_half_written_when_the_run_is_stopped() -> None:
    with open_hood("run", "--json", "--quiet", "-c", UP_AND_WAITING) as process:
        wait_until(lambda: is_waiting_in_a_sandbox(process.pid), 30, "the program runs")
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60) == (b"", b"")
        assert process.returncode == 143
    assert_nothing_is_left(process.pid)


def test_a_reader_that_does_not_read_cannot_keep_us_from_stopping() -> None:
    with open_hood("run", "-c", "import os\nwhile True: os.write(1, b'x' * 4096)") as process:
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        wait_until(lambda: waiting_bytes(pipe) >= 65536, 30, "the pipe is full")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert_nothing_is_left(process.pid)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_signal_before_the_run_has_started_stops_it_too(processes: int) -> None:
    """It was not up yet and died of the signal, or it cleans up. Two processes are a cell that was told its task."""
    with open_hood("run", "-c", UP_AND_WAITING) as process:
        wait_until(lambda: len(descendants(process.pid)) >= processes, 30, "a cell is being started")
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 143 or (processes, process.returncode) == (1, -signal.SIGTERM)
        assert out in (b"", b"up\n")
    assert_nothing_is_left(process.pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_the_caller_ignores_stays_ignored(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with open_hood("run", "-c", "print('up', flush=True); input()") as process:
            signal.signal(number, before)
            wait_for_line(process.stdout, b"up\n")
            process.send_signal(number)
            process.communicate(b"go on\n", timeout=60)
            assert process.returncode == 0
    finally:
        signal.signal(number, before)


def test_nothing_survives_when_we_are_killed() -> None:
    with open_hood("run", "-c", UP_AND_WAITING) as process:
        wait_for_line(process.stdout, b"up\n")
        family = descendants(process.pid)
        assert family
        process.kill()
        process.wait(60)
        wait_until(lambda: not any(map(is_alive, family)), 5, "all of the run is dead")


def waiting_bytes(pipe: int) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))
    return count


def is_waiting_in_a_sandbox(process: int) -> bool:
    return bool(run_cgroups_of(process)) or len(descendants(process)) > 2
