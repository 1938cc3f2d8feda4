"""A cell: a warm interpreter inside its namespaces that has runs standing by, and forks the next ones.

One cell serves one policy of one tenant. It is process 1 of its own process namespace: when it ends, for whatever
reason, the kernel ends all its runs. It ends when the host's end of the control channel closes.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from . import init, kernel, rootfs, wire
from .lockdown import inner_uid
from .seccomp import build_filter
from .spec import CellSpec
from .steps import StepError, step
from .users import UID_RANGE, map_own_user, user_namespace

_NAMESPACES = kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS | kernel.CLONE_NEWCGROUP
_MAX_STARTING = 4
_REFILL_DELAY_MS = 4.0
_HOSTNAME = "sandbox"


def main(control_descriptor: int, spec: CellSpec) -> NoReturn:
    control = socket.socket(fileno=control_descriptor)
    try:
        _forget_the_host()
        with step("entering the cell's cgroup"):
            for entrance in spec["entrances"]:
                os.write(entrance, b"0")
        wire.close_all(spec["entrances"])
        _isolate(spec)
        with step("making the cell's process namespace"):
            kernel.unshare(kernel.CLONE_NEWPID)
        cell = os.fork()
        if cell:
            _wait_for(cell, control)
        kernel.die_with_parent()
        Cell(control, spec).serve()
    except StepError as error:
        wire.send(control, error.as_message())
    finally:
        os._exit(1)


def _forget_the_host() -> None:
    """No terminal, no signal settings, no mask: nothing of the process that started us."""
    os.setsid()
    os.umask(0o022)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        try:
            signal.signal(number, signal.SIG_DFL)
        except OSError:
            continue  # two real-time signals belong to the C library


def _isolate(spec: CellSpec) -> None:
    if spec["rootless"]:
        with step("making a user namespace"):
            kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
            map_own_user(0, spec["host_uid"], spec["host_gid"])
        rootfs.enter_root(spec)
        with step("making the cell's namespaces"):
            kernel.unshare(_NAMESPACES)
    else:
        _isolate_as_root(spec)
    with step("naming the sandbox"):
        socket.sethostname(_HOSTNAME)


def _isolate_as_root(spec: CellSpec) -> None:
    """Root may show files that the sandbox's user could not reach, so it builds the root first and then steps down."""
    with step("making a user namespace"):
        id_map = f"0 {spec['uid_base']} {UID_RANGE}"
        namespace = user_namespace(id_map, id_map)
        kernel.unshare(kernel.CLONE_NEWNS)
    rootfs.enter_root(spec)
    with step("stepping down from root"):
        os.setgroups([])
        kernel.setns(namespace, kernel.CLONE_NEWUSER)
        os.close(namespace)
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    with step("making the cell's namespaces"):
        kernel.unshare(_NAMESPACES | kernel.CLONE_NEWNS)


def _wait_for(cell: int, control: socket.socket) -> NoReturn:
    """The process that the host started: it stays only to be waited for."""
    control.close()
    _, status = os.waitpid(cell, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


class _Standby:
    def __init__(self, process: int, channel: socket.socket) -> None:
        self.process, self.channel, self.ready = process, channel, False
        self.pidfd = os.pidfd_open(process)


class Cell:
    """The cell's loop. Single-threaded: it forks."""

    def __init__(self, control: socket.socket, spec: CellSpec) -> None:
        self._control = control
        self._spec = spec
        self._standbys: list[_Standby] = []
        self._ending: dict[int, int] = {}
        self._waiting: list[tuple[dict[str, Any], list[int]]] = []
        self._workspaces: set[int] = set()
        self._runs_made = 0
        self._used_at = time.monotonic()
        self._poll = select.poll()

    def serve(self) -> NoReturn:
        self._open()
        self._poll.register(self._control, select.POLLIN)
        self._refill()
        self._await_first_standby()
        wire.send(self._control, {"ready": True, "landlock_abi": kernel.landlock_abi(), "process": os.getpid()})
        while True:
            self._turn()

    def _open(self) -> None:
        with step("mounting the cell's folders"):
            rootfs.mount_proc()
            self._masks = rootfs.existing_proc_masks()
            rootfs.open_workspaces()
            self._own_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._filter = build_filter(os.uname().machine)
        _preload(self._spec["preload"], self._spec["module_path"])
        if len(os.listdir("/proc/self/task")) != 1:
            raise StepError("preloading modules", "a preloaded module started a thread, and a cell must not have any")
        gc.collect()
        gc.freeze()
        gc.disable()

    def _await_first_standby(self) -> None:
        """A cell whose runs cannot start is not ready; better to say so now than at the first run."""
        standby = self._standbys[0]
        message, _ = wire.receive(standby.channel)
        if message is None or "failed" in message:
            raise StepError(**init._failure(message))
        standby.ready = True

    def _turn(self) -> None:
        events = self._poll.poll(self._patience_ms())
        if not events and not self._is_short() and self._is_unused():
            os._exit(0)
        for descriptor, _ in events:
            if descriptor == self._control.fileno():
                self._obey()
            elif descriptor in self._ending:
                self._bury(descriptor)
            else:
                self._hear(next(s for s in self._standbys if s.channel.fileno() == descriptor))
        self._dispatch()
        # A run that was just handed over should have the processors; the next standby can wait a moment.
        if not events or not any(standby.ready for standby in self._standbys):
            self._refill()

    def _patience_ms(self) -> float | None:
        if self._is_short():
            return _REFILL_DELAY_MS
        return None if self._workspaces or self._waiting else self._spec["idle_seconds"] * 1000

    def _is_short(self) -> bool:
        return len(self._standbys) < self._spec["standbys"]

    def _is_unused(self) -> bool:
        idle_seconds = time.monotonic() - self._used_at
        return not self._workspaces and not self._waiting and idle_seconds >= self._spec["idle_seconds"]

    def _obey(self) -> None:
        message, descriptors = wire.receive(self._control)
        if message is None:
            os._exit(0)
        self._used_at = time.monotonic()
        if message["do"] == "run":
            self._waiting.append((message, descriptors))
        elif message["do"] == "close" and message["workspace"] in self._workspaces:
            self._workspaces.discard(message["workspace"])
            rootfs.unmount_workspace(message["workspace"])

    def _dispatch(self) -> None:
        while self._waiting:
            standby = next((s for s in self._standbys if s.ready), None)
            if standby is None:
                return
            message, descriptors = self._waiting.pop(0)
            self._standbys.remove(standby)
            self._hand_over(standby, message, descriptors)

    def _hand_over(self, standby: _Standby, message: dict[str, Any], descriptors: list[int]) -> None:
        workspace = message["workspace"]
        if workspace not in self._workspaces:
            rootfs.mount_workspace(workspace, inner_uid(self._spec), self._spec["limits"])
            self._workspaces.add(workspace)
        descriptors.append(kernel.clone_mount(rootfs.workspace_place(workspace)))
        wire.send(standby.channel, message, tuple(descriptors))
        wire.close_all(descriptors)
        self._release(standby)

    def _release(self, standby: _Standby) -> None:
        """From here on it answers to the host; we only bury it."""
        self._poll.unregister(standby.channel)
        standby.channel.close()
        self._ending[standby.pidfd] = standby.process
        self._poll.register(standby.pidfd, select.POLLIN)

    def _hear(self, standby: _Standby) -> None:
        message, _ = wire.receive(standby.channel)
        if message is not None and "failed" not in message:
            standby.ready = True
            return
        self._standbys.remove(standby)
        self._release(standby)
        if self._waiting:
            _, descriptors = self._waiting.pop(0)
            with socket.socket(fileno=descriptors[0]) as reply:
                wire.send(reply, StepError(**init._failure(message)).as_message())
            wire.close_all(descriptors[1:])

    def _bury(self, pidfd: int) -> None:
        self._poll.unregister(pidfd)
        os.close(pidfd)
        os.waitpid(self._ending.pop(pidfd), 0)

    def _refill(self) -> None:
        starting = sum(not s.ready for s in self._standbys)
        wanted = self._spec["standbys"] + len(self._waiting)
        while len(self._standbys) < wanted and starting < _MAX_STARTING:
            self._start_standby()
            starting += 1

    def _start_standby(self) -> None:
        ours, theirs = wire.socket_pair()
        self._runs_made += 1
        # SAFETY: only the next child is born in the new process namespace, as its process 1; then we go back to our own.
        kernel.unshare(kernel.CLONE_NEWPID)
        process = os.fork()
        if process == 0:
            self._become_init(theirs)
        kernel.setns(self._own_namespace, kernel.CLONE_NEWPID)
        theirs.close()
        standby = _Standby(process, ours)
        self._standbys.append(standby)
        self._poll.register(ours, select.POLLIN)

    def _become_init(self, channel: socket.socket) -> NoReturn:
        self._control.close()
        for standby in self._standbys:
            standby.channel.close()
        for _, descriptors in self._waiting:
            wire.close_all(descriptors)
        init.main(channel, self._spec, f"run-{self._runs_made}", self._masks, self._filter)


def _preload(modules: list[str], module_path: list[str]) -> None:
    sys.path[:0] = module_path
    # Numeric libraries start a thread for each core when they are imported; a forked run could not use them.
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    for name in modules:
        try:
            __import__(name)
        except Exception as error:
            raise StepError("preloading modules", f"import {name}: {type(error).__name__}: {error}") from error
    del sys.path[: len(module_path)]
