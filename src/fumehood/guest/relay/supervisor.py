"""One run: starts its program, keeps its time, ends it, and tells the host how it went.

It is a process of its own for each run, between the forker and the program. When it says that a run is over, it has
seen that nothing of it is left.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

from ..contract import wire
from ..contract.paths import RUN_FOLDER, WORKSPACE
from ..isolation import kernel
from ..isolation.steps import StepError, step
from ..program import shutdown, start
from ..program.peak_memory import peak_memory_bytes
from ..program.refusals import read_refusal
from ..program.run_clock import RunClock, send_to_group
from . import child, scratch
from .isolation import RelayIsolation, acting_as
from .process_group import ProcessGroup
from .process_tree import ProcessTree


class RunStart(NamedTuple):
    """What a new run needs to know."""

    isolation: RelayIsolation
    interpreter: start.GuestInterpreter
    message: wire.Message
    descriptors: list[int]
    """Its reply socket, its request, and then what takes the place of its standard streams."""
    folder: str
    gate: socket.socket


_DISKS = (*scratch.FOLDERS, WORKSPACE)


def main(isolation: RelayIsolation, interpreter: start.GuestInterpreter, gate: socket.socket) -> NoReturn:
    """Waits for a run, then is its supervisor, and ends with it."""
    try:
        kernel.die_with_parent()
        os.setsid()
        told, descriptors = wire.receive(gate)
        if told is not None:
            _supervise(RunStart(isolation, interpreter, told["message"], descriptors, told["folder"], gate))
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(1)


def _supervise(run: RunStart) -> None:
    try:
        Supervisor(run).watch()
    except StepError as error:
        _refuse(run, error)


class Supervisor:
    def __init__(self, run: RunStart) -> None:
        self._run = run
        self._reply = socket.socket(fileno=run.descriptors[0])
        self._clock = RunClock(self._send_signal, self._send_to_group, self._send_usage)
        self._status: int | None = None
        self._deaths = _notice_deaths()
        self._processes = self._hold_processes()
        self._counts = self._processes.failures()
        self._full = _full_disks()
        self._channel, theirs = wire.socket_pair()
        with theirs:
            with step("starting the program's process"):
                self._program = os.fork()
            if self._program == 0:
                child.main(run, self._processes, theirs, (self._reply, self._channel, run.gate))
        wire.close_all(run.descriptors[1:])
        self._clock.start(run.message["timeout"], is_interruptible=run.message["interruptible"])

    def _hold_processes(self) -> ProcessTree | ProcessGroup:
        spec = self._run.isolation.spec
        return ProcessGroup(spec["limits"]["processes"]) if spec["groups"] else ProcessTree()

    def watch(self) -> NoReturn:
        poll = select.poll()
        poll.register(self._reply, select.POLLIN)
        poll.register(self._deaths, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll(self._patience_ms()):
                if descriptor == self._deaths:
                    self._reap()
                elif not self._handle_command():
                    self._end("kill")
            if self._status is not None:
                self._end("exit")
            if not self._clock.check(time.monotonic()):
                self._end("wall_time")

    def _patience_ms(self) -> float | None:
        at = self._clock.wakes_at
        return None if at is None else max(0.0, at - time.monotonic()) * 1000 + 1

    def _reap(self) -> None:
        os.read(self._deaths, 4096)
        with suppress(ChildProcessError):
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if process == 0:
                    return
                if process == self._program:
                    self._status = status

    def _handle_command(self) -> bool:
        """Reads a command of the host; false when the run is to end."""
        message: wire.Message | None = None
        with suppress(ConnectionResetError):
            message, _ = wire.receive(self._reply)
        return self._clock.handle_command(message or {"do": "end"})

    def _send_signal(self, number: int) -> None:
        """It is our child and not buried yet, so the number is still its own."""
        if self._status is None:
            with suppress(ProcessLookupError):
                os.kill(self._program, number)

    def _send_to_group(self, number: int) -> None:
        if self._status is None:
            send_to_group(self._program, number)

    def _send_usage(self) -> None:
        if self._status is None:  # otherwise its end is sent next, with what it has used
            cpu_ms = self._processes.cpu_seconds() * 1000
            peak = self._processes.peak_memory_bytes() or peak_memory_bytes(self._program)
            self._tell({"usage": {"cpu_ms": cpu_ms, "peak_memory_bytes": peak}})

    def _end(self, ended_by: str) -> NoReturn:
        """Kill what is left, wait for the proof, have it cleared up, and only then tell the host."""
        others = self._processes.count_others(self._program) if self._status else 0
        self._kill_program()
        self._processes.kill()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        answer: dict[str, Any] = {
            "status": self._status if ended_by == "exit" else None,
            "ended_by": ended_by,
            "cpu_ms": self._processes.cpu_seconds() * 1000,
            "peak_memory_bytes": self._processes.peak_memory_bytes() or used.ru_maxrss * 1024,
            "trouble": None if self._status == 0 else self._trouble(others),
        }
        if self._run.folder != RUN_FOLDER:
            with acting_as(self._run.isolation.spec["user"]):
                scratch.remove_run_folder(self._run.folder)
        wire.send(self._run.gate, {"over": True})
        wire.receive(self._run.gate)
        self._tell(answer)
        os._exit(0)

    def _kill_program(self) -> None:
        """By itself first: a run that ends as it begins may not be in its group yet, and would go on unseen."""
        if self._status is None:
            os.kill(self._program, signal.SIGKILL)
            os.waitpid(self._program, 0)

    def _trouble(self, others: int) -> dict[str, Any]:
        """Everything that can tell why a program failed."""
        now = self._processes.failures()
        with acting_as(self._run.isolation.spec["user"]):
            folder = scratch.open_run_folder(self._run.folder)
        return {
            "refusal": read_refusal(self._channel),
            "processes": others + 1,
            "exhausted": "" if folder is None else shutdown.read_exhausted(folder),
            "disk_full": bool(_full_disks() - self._full),
            "out_of_memory_kills": (now.memory or 0) - (self._counts.memory or 0),
            "refused_processes": None if now.processes is None else now.processes - (self._counts.processes or 0),
        }

    def _tell(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # the host is gone, and with it everyone who could want to know
            wire.send(self._reply, message)


def _refuse(run: RunStart, failure: StepError) -> None:
    """Nothing has been started. Tell the forker that we are done, and the host why."""
    wire.send(run.gate, {"over": True})
    wire.receive(run.gate)
    with socket.socket(fileno=os.dup(run.descriptors[0])) as reply, suppress(OSError):
        wire.send(reply, failure.as_message())


def _ignore(number: int, frame: object) -> None:
    """What matters is the byte that Python writes when the signal arrives."""


def _notice_deaths() -> int:
    """Readable when a child has ended."""
    read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, _ignore)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def _full_disks() -> set[str]:
    usages = {folder: os.statvfs(folder) for folder in _DISKS}
    return {folder for folder, used in usages.items() if used.f_bavail == 0 or (used.f_files and used.f_favail == 0)}
