"""Cells before they know what they are for: an interpreter that has imported the guest, and waits to be told.

None of it depends on a policy, so a command can have one grow while it is still importing what reads policies. Nothing
that does such reading may be imported here.
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
# The folder goes as a descriptor: the command line stays visible inside, and is not to tell where we are installed.
_BOOT = (
    "import os, sys; control, folder = map(int, sys.argv[1:]); sys.path.insert(0, f'/proc/self/fd/{folder}'); "
    "from guest.cell import main; del sys.path[0]; os.close(folder); main.main(control)"
)


class Embryo(NamedTuple):
    """The host's end of one. It ends when `control` is closed."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    said: int
    """What it writes to its standard error."""

    def abandon(self) -> None:
        self.process.kill()
        self.control.close()
        os.close(self.said)
        self.process.wait()


_ahead: list[Embryo] = []


def start_ahead() -> None:
    """For a command that will most likely need a cell. That there is none yet is not worth a word."""
    with suppress(OSError):
        _ahead.append(_start())


def abandon_ahead() -> None:
    """The policy wants no cell."""
    while _ahead:
        _ahead.pop().abandon()


def take() -> Embryo:
    try:
        return _ahead.pop()
    except IndexError:  # none was begun, or another thread has taken it
        return _start()


def _start() -> Embryo:
    with ExitStack() as undo:
        ours, theirs = wire.socket_pair()
        undo.callback(ours.close)
        said = os.memfd_create("cell", os.MFD_CLOEXEC)
        undo.callback(os.close, said)
        with theirs:
            process = _spawn(theirs.fileno(), said)
        undo.pop_all()
    return Embryo(process, ours, said)


def _spawn(control: int, said: int) -> subprocess.Popen[bytes]:
    """With nothing of ours but these."""
    folder = os.open(Path(fumehood.guest.__file__).parent.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return subprocess.Popen(
            [own_interpreter().executable, "-I", "-S", "-c", _BOOT, str(control), str(folder)],
            pass_fds=(control, folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env={"LC_ALL": "C.UTF-8"},
            cwd="/",
        )
    finally:
        os.close(folder)
