"""Interpreters that have imported the guest and wait for the specification of a cell.

They depend on no policy, so a command can start one while it still imports what reads policies. Nothing that does such
reading may be imported here.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import fumehood.guest
from fumehood.guest.contract import wire
from fumehood.guest.contract.limits import PRESTART_SECONDS
from fumehood.host.interpreter import own_interpreter

# Runs in the new process: the guest's folder is imported as a package of its own, without fumehood around it.
# The folder goes as a descriptor: the command line stays visible inside, and must not name the installation's path.
_BOOT = (
    "import gc, os, select, sys; gc.disable(); control, folder, host, patience_ms = map(int, sys.argv[1:]); "
    "poll = select.poll(); poll.register(control, select.POLLIN); poll.register(host, select.POLLIN); "
    "poll.poll(patience_ms); "
    "sys.path.insert(0, f'/proc/self/fd/{folder}'); from guest.program.fork_hooks import ForkHooks; "
    "hooks = ForkHooks(); from guest.cell import main; del sys.path[0]; os.close(folder); "
    "main.main(control, host, hooks)"
)
# Before this an early interpreter is sure to be there; later it ends by itself.
_SURE_SECONDS = PRESTART_SECONDS - 10
# A process that has started its first cell may be over soon: what will then be of no use begins this much later.
_PATIENCE_SECONDS = 1.0


class PrestartedInterpreter(NamedTuple):
    """The host's end of one. It ends when `control` is closed."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    stderr: int
    """What it writes to its standard error."""
    started: float

    @property
    def is_usable(self) -> bool:
        return self.process.poll() is None and time.monotonic() - self.started < _SURE_SECONDS

    def abandon(self) -> None:
        self.process.kill()
        self.control.close()
        os.close(self.stderr)
        self.process.wait()


class Prestart:
    """At most `size` interpreters that were started early, for the next cells that need one. Safe from any thread.

    If it `renews`, there are others for the cells after those. No interpreter is of two cells.
    """

    def __init__(self, *, renews: bool = False, size: int = 1) -> None:
        self._early: list[PrestartedInterpreter] = []
        self._renews, self._size = renews, size
        self._taken = 0

    def start(self, patience_seconds: float = 0) -> None:
        """Starts a cell early, for a command that will likely need it. A failure is ignored: `take` tries again."""
        if len(self._early) < self._size:
            with suppress(OSError):
                self._early.append(start_interpreter(patience_seconds))

    def take(self) -> PrestartedInterpreter:
        """The early one, or a new one."""
        self._taken += 1
        try:
            early = self._early.pop()
        except IndexError:  # none was started, or another thread has taken it
            return start_interpreter()
        if early.is_usable:
            return early
        early.abandon()
        return start_interpreter()

    def renew(self) -> None:
        """After a cell has been started: another policy may follow."""
        for _ in range(self._size if self._renews else 0):
            self.start(_PATIENCE_SECONDS if self._taken == 1 else 0)

    def abandon(self) -> None:
        """Ends the early one, if it was not taken."""
        while self._early:
            self._early.pop().abandon()


@contextmanager
def early_interpreter() -> Iterator[Prestart]:
    """Started now, for the cell that a command will likely need; it ends with the block unless a cell has it."""
    prestart = Prestart()
    prestart.start()
    try:
        yield prestart
    finally:
        prestart.abandon()


def start_interpreter(patience_seconds: float = 0) -> PrestartedInterpreter:
    """It imports nothing before `patience_seconds` are over, unless it is needed."""
    with ExitStack() as undo:
        ours, theirs = wire.socket_pair()
        undo.callback(ours.close)
        stderr = os.memfd_create("cell", os.MFD_CLOEXEC)
        undo.callback(os.close, stderr)
        with theirs:
            process = _spawn(theirs.fileno(), stderr, round(patience_seconds * 1000))
        undo.pop_all()
    return PrestartedInterpreter(process, ours, stderr, time.monotonic())


def _spawn(control: int, stderr: int, patience_ms: int) -> subprocess.Popen[bytes]:
    """Inherits only these descriptors. One is of this process: a child that we fork keeps our end of `control` open."""
    folder = os.open(Path(fumehood.guest.__file__).parent.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    host = os.pidfd_open(os.getpid())
    try:
        return subprocess.Popen(
            [own_interpreter().executable, "-I", "-S", "-c", _BOOT, *map(str, (control, folder, host, patience_ms))],
            pass_fds=(control, folder, host),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env={"LC_ALL": "C.UTF-8"},
            cwd="/",
        )
    finally:
        os.close(host)
        os.close(folder)
