"""Ctrl-C and other ways to ask `hood` to stop: it stops, says so, and leaves nothing behind."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest
from live.cli_host import (
    UP_AND_WAITING,
    assert_nothing_is_left,
    open_hood,
    open_terminal,
    wait_for_line,
)
from live.traces import descendants, processes_with, wait_until

pytestmark = pytest.mark.usefixtures("way")

DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
WRITES_AND_WAITS = "import threading; open('/seen/up', 'w').close(); threading.Event().wait()"


@pytest.mark.parametrize("program", [UP_AND_WAITING, DEAF + UP_AND_WAITING])
def test_ctrl_c_stops_the_run(program: str) -> None:
    with open_terminal("run", "-c", program) as terminal:
        terminal.wait_for(b"up\r\n")
        terminal.type(b"\x03")
        assert terminal.wait_for_end() == 130
        assert b"^C\r\n" in terminal.seen
        assert terminal.seen.endswith(b"\r\nhood: stopped by SIGINT\r\n")
    assert_nothing_is_left(terminal.process.pid)


def test_ctrl_c_raises_keyboard_interrupt_in_the_program_as_under_plain_python() -> None:
    program = "try:\n    " + UP_AND_WAITING.replace("; ", "\n    ") + "\nfinally:\n    print('cleaned up')"
    with open_terminal("run", "-c", program) as terminal:
        terminal.wait_for(b"up\r\n")
        terminal.type(b"\x03")
        assert terminal.wait_for_end() == 130
        assert b"Traceback (most recent call last):" in terminal.seen
        assert b"\r\nKeyboardInterrupt\r\n" in terminal.seen
        assert b"\r\ncleaned up\r\n" in terminal.seen
        assert terminal.seen.endswith(b"hood: stopped by SIGINT\r\n")
    assert_nothing_is_left(terminal.process.pid)


@pytest.mark.parametrize("options", [(), ("--session",), ("--json",)], ids=["run", "session", "json"])
def test_a_program_that_handles_ctrl_c_decides_how_it_ends(options: tuple[str, ...], tmp_path: Path) -> None:
    program = f"try:\n    {WRITES_AND_WAITS}\nexcept KeyboardInterrupt:\n    print('bye')"
    with open_hood("run", *options, "-v", f"{tmp_path}:/seen:rw", "-c", program, stdin=subprocess.DEVNULL) as process:
        wait_until((tmp_path / "up").exists, 30, "the program runs")
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=60)
        assert (process.returncode, said) == (0, b"")
        assert (json.loads(out)["stdout"] if "--json" in options else out.decode()) == "bye\n"
    assert_nothing_is_left(process.pid)


def test_ctrl_c_interrupts_a_session() -> None:
    with open_hood("run", "--session", "-c", UP_AND_WAITING, stdin=subprocess.DEVNULL) as process:
        wait_for_line(process.stdout, b"up\n")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130
        assert b"\nKeyboardInterrupt\n" in said
        assert said.endswith(b"hood: stopped by SIGINT\n")
    assert_nothing_is_left(process.pid)


def test_a_program_has_a_moment_to_end_after_sigterm() -> None:
    program = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit('saved'))\n"
    with open_hood("run", "-c", program + "print('up', flush=True)\nsignal.pause()") as process:
        wait_for_line(process.stdout, b"up\n")
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60) == (b"", b"saved\n")
        assert process.returncode == 1
    assert_nothing_is_left(process.pid)


def test_a_second_ctrl_c_kills_a_program_that_does_not_end() -> None:
    with open_terminal("run", "-c", DEAF + UP_AND_WAITING) as terminal:
        terminal.wait_for(b"up\r\n")
        started = time.monotonic()
        terminal.type(b"\x03")
        terminal.wait_for(b"^C\r\n")
        terminal.type(b"\x03")
        assert terminal.wait_for_end() == 130
        assert time.monotonic() - started < 2.5, "it did not wait for the grace period to end"
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
        assert process.returncode == code
        assert said.endswith(f"hood: stopped by {number.name}\n".encode())
        assert (b"KeyboardInterrupt" in said) == (number is signal.SIGINT)
    assert_nothing_is_left(process.pid)


def test_json_is_not_half_written_when_the_run_is_stopped(tmp_path: Path) -> None:
    mount = f"{tmp_path}:/seen:rw"
    with open_hood("run", "--json", "--quiet", "-v", mount, "-c", WRITES_AND_WAITS) as process:
        wait_until((tmp_path / "up").exists, 30, "the program runs")
        process.send_signal(signal.SIGTERM)
        out, said = process.communicate(timeout=60)
        assert (process.returncode, said) == (143, b"")
        assert json.loads(out)["signal"] == "SIGTERM"
    assert_nothing_is_left(process.pid)


def test_a_reader_that_does_not_read_cannot_keep_us_from_stopping() -> None:
    with open_hood("run", "-c", "import os\nwhile True: os.write(1, b'x' * 4096)") as process:
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        wait_until(lambda: waiting_bytes(pipe) >= 65536, 30, "the pipe is full")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert_nothing_is_left(process.pid)


@pytest.mark.plain_only("it looks at the processes of a cold start")
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
    mark = f"98765.{os.getpid()}"
    with open_hood("run", "--language", "sh", "-c", f"echo up; exec sleep {mark}") as process:
        wait_for_line(process.stdout, b"up\n")
        wait_until(lambda: processes_with(f"sleep\0{mark}"), 30, "the program is that command")
        process.kill()
        process.wait(60)
        wait_until(lambda: not processes_with(mark), 5, "all of the run is dead")


def waiting_bytes(pipe: int) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))
    return count
