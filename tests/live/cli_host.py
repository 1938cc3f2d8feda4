"""`hood` as people use it: a process of its own, in a pipe or on a terminal, and proof that nothing of it is left."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from live.loaded_hood import LoadedHood, can_start
from live.traces import cgroups_of, descendants

HOOD = [sys.executable, "-m", "fumehood"]
SECONDS = 110
UP_AND_WAITING = "import threading; print('up', flush=True); threading.Event().wait()"


def hood(*arguments: str | Path, stdin: bytes | None = b"", **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end and check that it left nothing behind."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with start(*arguments, stdin=subprocess.PIPE, **options) as process:
        try:
            out, err = process.communicate(stdin, timeout=SECONDS)
        finally:
            process.kill()
    assert_nothing_is_left(process.pid)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def start(*arguments: str | Path, **options: Any) -> subprocess.Popen[bytes]:
    """Start a command; in a process that has done its imports, where that makes no difference."""
    plain = {"stdin", "stdout", "stderr", "env", "cwd", "text", "start_new_session"}
    is_plain = options.keys() <= plain and can_start(options.get("env"))
    return LoadedHood(arguments, **options) if is_plain else subprocess.Popen([*HOOD, *arguments], **options)


@contextmanager
def open_hood(*arguments: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A command under way; its output is a pipe unless said otherwise."""
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with start(*arguments, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_line(stream: IO[bytes] | None, line: bytes) -> None:
    assert stream is not None
    assert stream.readline() == line


def assert_nothing_is_left(process: int) -> None:
    assert descendants(process) == set()
    assert cgroups_of(process) == []


class Terminal:
    """The side of a terminal where the person sits."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor = descriptor
        self.process = process
        self.seen = b""

    def type(self, keys: bytes) -> None:
        os.write(self._descriptor, keys)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def hang_up(self) -> None:
        """Close the window."""
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, self._descriptor)
        os.close(nothing)

    def wait_for(self, text: bytes) -> None:
        deadline = time.monotonic() + SECONDS
        while text not in self.seen:
            assert time.monotonic() < deadline, f"{text!r} did not appear in {self.seen!r}"
            self._read()

    def wait_for_end(self) -> int:
        """The exit code; the kernel hangs the terminal up when the last process has let go of it."""
        while self._read():
            pass
        return self.process.wait(SECONDS)

    def _read(self) -> bool:
        if not select.select([self._descriptor], [], [], 1)[0]:
            return True
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:
            return False
        self.seen += data
        return bool(data)


def start_on(terminal: int, *arguments: str, env: dict[str, str] | None) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own with this terminal."""
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    if can_start(env):
        return LoadedHood(arguments, owns_terminal=True, env=env, **streams)
    # The process id stays that of hood.
    return subprocess.Popen(["setsid", "--ctty", *HOOD, *arguments], env=env, **streams)


@contextmanager
def open_terminal(*arguments: str, env: dict[str, str] | None = None) -> Iterator[Terminal]:
    """A command that owns a terminal, so that Ctrl-C on it is a signal."""
    ours, theirs = pty.openpty()
    try:
        with start_on(theirs, *arguments, env=env) as process:
            os.close(theirs)
            try:
                yield Terminal(ours, process)
            finally:
                process.kill()
    finally:
        os.close(ours)
