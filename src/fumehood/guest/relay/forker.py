"""The process that runs are forked from: a warm interpreter that never handles the data of a run.

It receives what to start, with descriptors to pass on, and knows which runs are under way. So it is what empties
the scratch folders, when no run uses them any more.
"""

from __future__ import annotations

import gc
import os
import select
import socket
import sys
from contextlib import suppress
from typing import NoReturn

from ..contract import wire
from ..contract.limits import SUPERVISORS
from ..contract.paths import RUN_FOLDER, TMP, VAR_TMP
from ..contract.relay_spec import RelaySpec
from ..isolation import kernel
from ..isolation.steps import StepError, step
from ..program import start
from ..program.fork_hooks import ForkHooks
from ..program.preload import preload, take_out_of_sight
from . import process_group, scratch, supervisor
from .isolation import RelayIsolation, acting_as

_RUNS_BETWEEN_COLLECTIONS = 1000


def main(control: socket.socket, spec: RelaySpec) -> NoReturn:
    try:
        kernel.die_with_parent()
        RelayForker(control, spec).serve()
    except StepError as error:
        wire.send(control, error.as_message())
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(1)


class RelayForker:
    """Single-threaded: it forks."""

    def __init__(self, control: socket.socket, spec: RelaySpec) -> None:
        self._control = control
        self._interpreter = start.GuestInterpreter(spec["environment"], spec["module_path"], ForkHooks())
        self._ours = take_out_of_sight()
        preload(self._interpreter, spec["preload"])
        with step("preparing the isolation of runs"):
            self._isolation = RelayIsolation(spec)
        if spec["groups"] == process_group.GVISOR:
            process_group.require_gvisor()
            process_group.prepare(process_group.GVISOR)
        self._gates: dict[int, socket.socket] = {}
        self._standbys: list[socket.socket] = []
        self._folders: dict[int, str] = {}
        """The folders of runs that use the scratch folders, by their gate."""
        self._kept: tuple[str, ...] = ()
        self._forks = 0
        # Where each run has a count of its own, none can take another's place.
        self._most_standbys = 1 if spec["groups"] else SUPERVISORS
        self._poll = select.poll()
        if len(os.listdir("/proc/self/task")) != 1:
            raise StepError(
                "preloading modules", "a preloaded module started a thread, and the guest must not have any"
            )

    def serve(self) -> NoReturn:
        # Some modules write when they are imported.
        scratch.clear()
        self._isolation.install_filter()
        gc.collect()
        gc.freeze()
        gc.disable()
        self._refill()
        wire.send(self._control, {"ready": list(sys.version_info[:2]), "confined_by": self._isolation.layers})
        self._poll.register(self._control, select.POLLIN)
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._control.fileno():
                    self._handle_command()
                else:
                    self._conclude(descriptor)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass
            self._refill()

    def _refill(self) -> None:
        """One for each that has been buried: more than these would take places that are the programs'."""
        while len(self._standbys) + len(self._gates) < self._most_standbys:
            try:
                self._prepare()
            except OSError:
                return  # the next turn tries again, and a run that needs one gets the error

    def _handle_command(self) -> None:
        message, descriptors = wire.receive(self._control)
        if message is None:
            os._exit(0)
        try:
            with step("starting a run's processes"):
                self._start(message, descriptors)
        except StepError as error:
            with socket.socket(fileno=os.dup(descriptors[0])) as reply, suppress(OSError):
                wire.send(reply, error.as_message())
        wire.close_all(descriptors)

    def _start(self, message: wire.Message, descriptors: list[int]) -> None:
        if not self._standbys:
            self._prepare()
        if message["keeps_tmp"]:
            self._kept = (TMP, VAR_TMP)
        folder = self._make_folder(message)
        gate = self._standbys.pop(0)
        wire.send(gate, {"message": message, "folder": folder}, tuple(descriptors))
        self._gates[gate.fileno()] = gate
        if message["kind"] != "files":
            self._folders[gate.fileno()] = folder
        self._poll.register(gate, select.POLLIN)

    def _prepare(self) -> None:
        """A supervisor that waits for a run. Their places are taken before a program can take them all."""
        ours, theirs = wire.socket_pair()
        try:
            child = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if child == 0:
            self._leave(ours)
            supervisor.main(self._isolation, self._interpreter, theirs)
        theirs.close()
        self._standbys.append(ours)
        self._forks += 1
        if self._forks % _RUNS_BETWEEN_COLLECTIONS == 0:
            gc.collect()  # off by itself, because it would touch memory that all runs share

    def _make_folder(self, message: wire.Message) -> str:
        """The folder for a run's script: the usual one for a run that is alone; others get one of their own."""
        if message["kind"] == "files" or not self._folders:
            return RUN_FOLDER
        with acting_as(self._isolation.spec["user"]):
            return scratch.make_run_folder()

    def _leave(self, ours: socket.socket) -> None:
        """In a new supervisor: nothing of the forker's own is its business."""
        for line in (self._control, ours, *self._gates.values(), *self._standbys):
            line.close()

    def _conclude(self, gate: int) -> None:
        """A run is over, its processes are gone, and the host does not know yet: the moment to clear up after it."""
        line = self._gates.pop(gate)
        self._poll.unregister(line)
        word, _ = wire.receive(line)
        if word is None:
            # Its supervisor was killed, and nothing holds its processes any more. They end with the container.
            os._exit(1)
        folder = self._folders.pop(gate, None)
        if folder is not None and not self._folders:
            with acting_as(self._isolation.spec["user"]):
                scratch.clear(self._kept)
        with line, suppress(OSError):
            wire.send(line, {"cleared": True})
