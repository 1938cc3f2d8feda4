"""The main loop of a cell: keeps runs on standby, passes requests to them, and ends what is over.

It ends when the host does, when the host's end of the control channel closes, or when it was not used for a while.
"""

from __future__ import annotations

import gc
import os
import select
import socket
import time
from contextlib import nullcontext, suppress
from functools import cache
from typing import NoReturn

from ..contract import wire
from ..contract.cell_spec import CellSpec
from ..contract.paths import RUN_FOLDER, TMP, WORKSPACE
from ..contract.preload import USUAL_MODULES
from ..isolation import kernel, rootfs
from ..isolation.gate import SyscallGate
from ..isolation.run import Isolation, inner_uid
from ..isolation.seccomp import build_filter
from ..isolation.steps import StepError, step
from ..isolation.syscall_filter import install_filter
from ..program import start
from ..program.fork_hooks import ForkHooks
from ..program.preload import preload, take_out_of_sight
from .loopbacks import Loopbacks
from .machine_code import REAPER, executable
from .supervision import Forker, Run
from .template import RunTemplate

_REAPER = f"{RUN_FOLDER}/reaper"
_MAX_STARTING = 4
_QUIET_SECONDS = 0.002
_BUSY_SECONDS = 0.02
_MOST_BESIDE_REHEARSAL = 2
_CROWDED_SECONDS = 0.05


class Cell:
    """The cell's loop. Single-threaded: it forks."""

    def __init__(self, control: socket.socket, spec: CellSpec, hooks: ForkHooks) -> None:
        self._control = control
        self._spec = spec
        self._fork_hooks = hooks
        self._standbys: list[Run] = []
        self._runs: list[Run] = []
        self._ended: list[Run] = []
        """Runs that are over and answered, and not cleaned up yet."""
        self._by_descriptor: dict[int, Run] = {}
        self._waiting: list[tuple[wire.Message, list[int]]] = []
        self._workspaces: set[int] = set()
        self._tmps: set[int] = set()
        self._loopbacks = Loopbacks(spec["shares_loopback"])
        self._last: wire.Message | None = None
        """The request that was carried out last: the next one is likely to be for the same workspace."""
        self._used_at = time.monotonic()
        self._crowded_until = 0.0
        self._poll = select.poll()
        self._has_practised = False

    def serve(self) -> NoReturn:
        self._open()
        self._refill(least=1)
        failure = self._standbys[0].wait_ready()
        if failure:
            # A cell whose runs cannot start is not ready; better to report that now than at the first run.
            raise failure
        self._forget(self._standbys[0].channel.fileno())
        wire.send(self._control, {"ready": True})
        self._poll.register(self._control, select.POLLIN)
        self._poll.register(self._spec["host_process"], select.POLLIN)
        self._poll.register(self._template, select.POLLIN)
        while True:
            self._turn()

    def _open(self) -> None:
        with step("mounting the cell's folders"):
            rootfs.mount_proc()
            rootfs.open_workspaces()
            rootfs.write_executable(_REAPER, executable(os.uname().machine, REAPER))
        interpreter = start.GuestInterpreter(self._spec["environment"], self._spec["module_path"], self._fork_hooks)
        self._ours = take_out_of_sight()
        # The usual modules write nothing when they are imported, and most of them have been.
        with rootfs.scratch() if set(self._spec["preload"]) - set(USUAL_MODULES) else nullcontext():
            preload(interpreter, self._spec["preload"])
        with step("preparing the isolation of runs"):
            gate = SyscallGate()
            kernel.set_up_through(gate.call)
            isolation = Isolation(self._spec, rootfs.proc_masks(), gate.page)
            interpreter.prepare()
        if len(os.listdir("/proc/self/task")) != 1:
            raise StepError("preloading modules", "a preloaded module started a thread, and a cell must not have any")
        self._install_filter(gate)
        gc.collect()
        gc.freeze()
        gc.disable()
        with step("starting the process that runs are copies of"):
            self._template = RunTemplate(isolation, interpreter, _REAPER)
        self._forker = Forker(self._spec, self._template)

    def _install_filter(self, gate: SyscallGate) -> None:
        """Once, for the cell and all its runs: to compile one for every run costs time, and memory of the host."""
        executes_files_only = self._spec["executables"] is not None
        with step("installing the system call filter"):
            program = cell_filter(executes_files_only=executes_files_only)
            install_filter(program, gate)

    def _turn(self) -> None:
        events = self._poll.poll(self._patience_ms())
        for descriptor, _ in events:
            if descriptor == self._control.fileno():
                self._handle_request()
            elif descriptor == self._spec["host_process"]:
                os._exit(0)
            elif descriptor == self._template.fileno():
                raise RuntimeError("the process that runs are copies of is gone, and with it their parent")
            else:
                self._handle_event(descriptor)
        self._end_overdue()
        self._dispatch()
        # A run that was just handed over, or a host with a new answer, should have the processors; the rest can wait.
        if not events or self._waiting or not any(run.is_ready for run in self._standbys):
            self._clean_up()
            self._refill()
        if not events:
            self._attach_ahead()
            self._practise()
        if not events and self._is_unused():
            os._exit(0)

    def _patience_ms(self) -> float | None:
        limits = [at - time.monotonic() for run in self._runs if (at := run.clock.wakes_at) is not None]
        if len(self._standbys) < self._spec["standbys"] or self._ended:
            limits.append(_BUSY_SECONDS if self._runs else _QUIET_SECONDS)
        if not self._workspaces and not self._waiting:
            limits.append(self._spec["idle_seconds"])
        return max(0.0, min(limits)) * 1000 + 1 if limits else None

    def _is_unused(self) -> bool:
        idle_seconds = time.monotonic() - self._used_at
        return not self._workspaces and not self._waiting and idle_seconds >= self._spec["idle_seconds"]

    def _handle_request(self) -> None:
        message, descriptors = wire.receive(self._control)
        if message is None:
            os._exit(0)
        self._used_at = time.monotonic()
        if message["do"] == "run":
            if self._waiting or self._count_running():
                self._crowded_until = self._used_at + _CROWDED_SECONDS
            self._waiting.append((message, descriptors))
        elif message["do"] == "answer":
            wire.close_all(descriptors)  # which is the answer
        elif message["do"] == "expect":
            self._expect(message)
        elif message["do"] == "ports":
            for run in [run for run in self._runs if run.workspace == message["workspace"]]:
                run.change_ports(message["ports"])
        elif message["do"] == "reach":
            self._loopbacks.reach(message, descriptors[0], self._forker.network)
        elif message["do"] == "close" and message["workspace"] in self._workspaces:
            for run in [run for run in self._runs if run.workspace == message["workspace"]]:
                self._finish(run, "kill")
            for run in [run for run in self._standbys if run.workspace == message["workspace"]]:
                self._detach(run)
            for run in [run for run in self._standbys if run.loopback_of == message["workspace"]]:
                self._discard(run)
            self._loopbacks.close(message["workspace"])
            self._workspaces.discard(message["workspace"])
            rootfs.unmount_shared(rootfs.workspace_place(message["workspace"]))
            if message["workspace"] in self._tmps:
                self._tmps.discard(message["workspace"])
                rootfs.unmount_shared(rootfs.tmp_place(message["workspace"]))

    def _handle_event(self, descriptor: int) -> None:
        run = self._by_descriptor.get(descriptor)
        if run is None:
            return  # it ended earlier in this turn
        if run in self._standbys:
            self._take_ready(run)
        elif descriptor == run.pidfd:
            self._finish(run, "exit")
        elif not run.handle_command():
            self._finish(run, "kill")

    def _take_ready(self, run: Run) -> None:
        failure = run.wait_ready()
        if failure is None:
            self._forget(run.channel.fileno())
            return
        self._standbys.remove(run)
        self._forget(run.channel.fileno())
        run.abandon()
        self._refuse_next(failure)

    def _refuse_next(self, failure: StepError) -> None:
        if self._waiting:
            _, descriptors = self._waiting.pop(0)
            _refuse(descriptors, failure)

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for run in [run for run in self._runs if not run.clock.check(now)]:
            self._finish(run, "wall_time")

    def _finish(self, run: Run, ended_by: str) -> None:
        assert run.reply is not None
        self._forget(run.pidfd)
        self._forget(run.reply.fileno())
        self._runs.remove(run)
        run.end(ended_by)
        self._ended.append(run)

    def _clean_up(self) -> None:
        while self._ended:
            self._ended.pop().clean_up()

    def _dispatch(self) -> None:
        while self._waiting:
            run = self._choose(self._waiting[0][0]["workspace"])
            if run is None:
                return
            self._standbys.remove(run)
            message, descriptors = self._waiting.pop(0)
            try:
                with step("handing over the request"):
                    self._attach(run, message)
                    reply = run.start_program(message, descriptors)
            except StepError as error:
                _refuse(descriptors, error)
                run.abandon()
                continue
            self._runs.append(run)
            self._last = message
            self._watch(run.pidfd, run)
            self._watch(reply.fileno(), run)

    def _attach(self, run: Run, message: wire.Message) -> None:
        run.attach_workspace(message["workspace"], self._open_folders(message))
        self._loopbacks.adopt(run, message["workspace"])

    def _choose(self, workspace: int) -> Run | None:
        """A standby that is in this workspace already, else one that is in none, else any."""
        ready = [run for run in self._standbys if run.is_ready and self._loopbacks.fits(run, workspace)]
        return min(ready, key=lambda run: (run.workspace != workspace, run.workspace is not None), default=None)

    def _attach_ahead(self) -> None:
        """In a quiet moment: a standby for the sandbox that was used last. The others stay free for other sandboxes."""
        if self._last is not None and self._last["workspace"] in self._workspaces:
            self._expect(self._last)

    def _practise(self) -> None:
        """Once, in a quiet moment after the first run: a cell that is used once does without it."""
        if self._last is not None and not self._has_practised:
            self._has_practised = True
            self._template.practise()

    def _expect(self, message: wire.Message) -> None:
        """A request is about to come: the host has something to write down first, and we can use the time."""
        run = self._choose(message["workspace"])
        if run is None or run.workspace is not None:
            return
        try:
            with step("moving into a workspace"):
                self._attach(run, message)
        except StepError:
            # The request itself will fail in the same way and report it.
            self._last = None
            self._discard(run)

    def _detach(self, run: Run) -> None:
        """Takes the workspace of a sandbox that is closed from a standby."""
        try:
            with step("moving out of a workspace"):
                run.detach_workspace()
        except StepError:
            self._discard(run)

    def _discard(self, run: Run) -> None:
        self._standbys.remove(run)
        if not run.is_ready:
            self._forget(run.channel.fileno())
        run.abandon()

    def _open_folders(self, message: wire.Message) -> dict[str, str]:
        """Where a run is to see what belongs to its sandbox, and where that is."""
        identifier: int = message["workspace"]
        owner, limits, is_open = inner_uid(self._spec), self._spec["limits"], self._spec["executables"] is None
        if identifier not in self._workspaces:
            rootfs.mount_workspace(identifier, owner, limits, executable=is_open)
            self._workspaces.add(identifier)
        folders = {WORKSPACE: rootfs.workspace_place(identifier)}
        if not message["keeps_tmp"]:
            return folders
        if identifier not in self._tmps:
            rootfs.mount_tmp(identifier, owner, limits, executable=is_open)
            self._tmps.add(identifier)
        return {**folders, TMP: rootfs.tmp_place(identifier)}

    def _refill(self, least: int = 0) -> None:
        starting = sum(not run.is_ready for run in self._standbys)
        wanted = max(least, self._spec["standbys"] + len(self._waiting))
        while len(self._standbys) < wanted and starting < _MAX_STARTING:
            try:
                with step("starting a run's processes"):
                    run = self._start_standby()
            except StepError as error:
                if not self._by_descriptor:
                    raise
                self._refuse_next(error)
                return
            self._standbys.append(run)
            self._watch(run.channel.fileno(), run)
            starting += 1

    def _start_standby(self) -> Run:
        waiting = [message["workspace"] for message, _ in self._waiting]
        last = None if self._last is None else self._last["workspace"]
        workspace = self._loopbacks.next_workspace(self._standbys, waiting, last)
        run = Run(self._forker, rehearses=self._may_rehearse(), loopback=self._loopbacks.find(workspace))
        run.loopback_of = workspace
        return run

    def _may_rehearse(self) -> bool:
        """Whether the next standby has time for it: no request waits for it, nor several programs for the processors,
        nor did one come shortly before while another was under way.

        A rehearsal saves a caller's time, and takes more of the processors' than it saves.
        """
        is_crowded = time.monotonic() < self._crowded_until or self._count_running() >= _MOST_BESIDE_REHEARSAL
        return not is_crowded and len(self._standbys) >= len(self._waiting)

    def _count_running(self) -> int:
        """Sessions that rest do not count."""
        return sum(run.clock.wakes_at is not None for run in self._runs)

    def _watch(self, descriptor: int, run: Run) -> None:
        self._by_descriptor[descriptor] = run
        self._poll.register(descriptor, select.POLLIN)

    def _forget(self, descriptor: int) -> None:
        del self._by_descriptor[descriptor]
        self._poll.unregister(descriptor)


@cache
def cell_filter(*, executes_files_only: bool) -> bytes:
    """The filter before the cell's secret is in it: made ahead, because the usual one depends on no policy."""
    return build_filter(os.uname().machine, executes_files_only=executes_files_only, is_gated=True)


def _refuse(descriptors: list[int], failure: StepError) -> None:
    """Reports to the host why a request is not carried out."""
    with socket.socket(fileno=descriptors[0]) as reply, suppress(OSError):
        wire.send(reply, failure.as_message())
    wire.close_all(descriptors[1:])
