"""Interpreters that have imported the guest and wait for the specification of a cell.

They depend on no policy, so a command can start one while it still imports what reads policies. Nothing that does such
reading may be imported here.
"""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import fumehood.guest
from fumehood.guest.contract import wire
from fumehood.host.interpreter import own_interpreter

# Runs in the new process: the guest's folder is imported as a package of its own, without fumehood around it.
# The folder goes as a descriptor: the command line stays visible inside, and must not name the installation's path.
_BOOT = (
    "import os, sys; control, folder = map(int, sys.argv[1:]); sys.path.insert(0, f'/proc/self/fd/{folder}'); "
    "from guest.cell import main; del sys.path[0]; os.close(folder); main.main(control)"
)


class PrestartedInterpreter(NamedTuple):
    """The host's end of one. It ends when `control` is closed."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    stderr: int
    """What it writes to its standard error."""

    def abandon(self) -> None:
        self.process.kill()
        self.control.close()
        os.close(self.stderr)
        self.process.wait()


class Prestart:
    """At most one interpreter that was started early, for the first cell that needs one. Safe from any thread."""

    def __init__(self) -> None:
        self._early: list[PrestartedInterpreter] = []

    def start(self) -> None:
        """Starts a cell early, for a command that will likely need it. A failure is ignored: `take` tries again."""
        if not self._early:
            with suppress(OSError):
                self._early.append(start_interpreter())

    def take(self) -> PrestartedInterpreter:
        """The early one, or a new one."""
        try:
            return self._early.pop()
        except IndexError:  # none was started, or another thread has taken it
            return start_interpreter()

    def abandon(self) -> None:
        """Ends the early one, if it was not taken."""
        while self._early:
            self._early.pop().abandon()


def start_interpreter() -> PrestartedInterpreter:
    with ExitStack() as undo:
        ours, theirs = wire.socket_pair()
        undo.callback(ours.close)
        stderr = os.memfd_create("cell", os.MFD_CLOEXEC)
        undo.callback(os.close, stderr)
        with theirs:
            process = _spawn(theirs.fileno(), stderr)
        undo.pop_all()
    return PrestartedInterpreter(process, ours, stderr)


def _spawn(control: int, stderr: int) -> subprocess.Popen[bytes]:
    """Inherits only these descriptors."""
    folder = os.open(Path(fumehood.guest.__file__).parent.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return subprocess.Popen(
            [own_interpreter().executable, "-I", "-S", "-c", _BOOT, str(control), str(folder)],
            pass_fds=(control, folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env={"LC_ALL": "C.UTF-8"},
            cwd="/",
        )
    finally:
        os.close(folder)
