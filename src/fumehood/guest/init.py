"""Process 1 of a run: makes the run's own world, starts the program in it, watches it, and reports how it ended.

It lives in the run's namespaces but outside of its cgroups and its user namespace: the program cannot signal, trace or
starve it. When it ends, the kernel ends whatever is left of the run.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import time
from typing import Any, NoReturn

from . import kernel, program, rootfs, wire
from .cgroup import RunCgroups
from .lockdown import FileRules, inner_uid, surrender
from .spec import CellSpec
from .steps import StepError, step

_SPURIOUS_WAKE_SECONDS = 0.002


def main(channel: socket.socket, spec: CellSpec, name: str, masks: list[str], seccomp_program: bytes) -> NoReturn:
    """Never returns: the process ends here, whatever happens."""
    try:
        cgroups = RunCgroups(spec["hierarchies"], name)
        try:
            child, program_channel = _prepare(spec, cgroups, masks, seccomp_program)
            wire.send(channel, {"ready": True})
            message, descriptors = wire.receive(channel)
            if message is not None:
                _serve(message, descriptors, child, program_channel, cgroups)
        finally:
            _reap_everything()
            cgroups.remove()
    except StepError as error:
        wire.send(channel, error.as_message())
    finally:
        os._exit(0)


def _prepare(
    spec: CellSpec, cgroups: RunCgroups, masks: list[str], seccomp_program: bytes
) -> tuple[int, socket.socket]:
    """Everything that needs no knowledge of the code: done ahead of time, on standby."""
    with step("making the run's namespaces"):
        kernel.set_dumpable(False)
        kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC)
        kernel.raise_loopback()
    with step("mounting the run's folders"):
        rootfs.mount_run_folders(inner_uid(spec), spec["limits"])
        rootfs.mount_proc()
        rootfs.mask_proc(masks)
    with step("making the run's cgroups"):
        cgroups.make(spec["limits"])
    ours, theirs = wire.socket_pair()
    child = os.fork()
    if child == 0:
        ours.close()
        _become_program(theirs, spec, cgroups, seccomp_program)
    theirs.close()
    message, _ = wire.receive(ours)
    if message is None or "failed" in message:
        raise StepError(**_failure(message))
    return child, ours


def _failure(message: dict[str, Any] | None) -> dict[str, str]:
    if message is None:
        return {"step": "starting the program's process", "detail": "it ended before it was ready"}
    return {"step": message["failed"], "detail": message["detail"]}


def _become_program(channel: socket.socket, spec: CellSpec, cgroups: RunCgroups, seccomp_program: bytes) -> NoReturn:
    """In the child: give up everything, wait for the code, become it."""
    try:
        surrender(spec, cgroups, seccomp_program)
        with step("preparing file rules"):
            rules = FileRules(spec["writable"])
        program.prepare(spec["environment"], spec["module_path"])
        wire.send(channel, {"ready": True})
        message, descriptors = wire.receive(channel)
        if message is None:
            os._exit(0)
        request, source = wire.read_sealed_file(descriptors[0])
        with step("enforcing file rules"):
            rules.enforce()
        program.check(request)
        program.become(request, source, (descriptors[1], descriptors[2], descriptors[3]))
    except StepError as error:
        wire.send(channel, error.as_message())
    except program.RequestRefusedError as error:
        wire.send(channel, {"refused": str(error)})
    finally:
        os._exit(1)


def _serve(
    message: dict[str, Any], descriptors: list[int], child: int, program_channel: socket.socket, cgroups: RunCgroups
) -> None:
    reply = socket.socket(fileno=descriptors[0])
    workspace = descriptors[5]
    with step("attaching the workspace"):
        kernel.attach_mount(workspace, rootfs.WORKSPACE)
    wire.send(program_channel, {"go": True}, tuple(descriptors[1:5]))
    wire.close_all(descriptors[1:])
    kernel.drop_capabilities()
    watch = _Watch(child, reply, message["timeout"])
    ended_by = watch.until_over()
    _reap_everything()
    refusal, _ = wire.receive(program_channel)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    outcome = {
        "status": watch.status,
        "ended_by": ended_by,
        "cpu_ms": (used.ru_utime + used.ru_stime) * 1000,
        "peak_rss_bytes": used.ru_maxrss * 1024,
        "processes": watch.processes,
        "exhausted": program.read_exhausted(),
        "disk_full": any(_is_full(folder) for folder in (rootfs.WORKSPACE, rootfs.RUN_FOLDER)),
        "usage": cgroups.usage(),
        "refusal": refusal,
    }
    try:
        reply.send(json.dumps(outcome).encode())
    except OSError:
        pass  # the host is gone, and with it everyone who could want to know
    reply.close()


class _Watch:
    """Waits for the end of the program, of the time, or of the caller's patience."""

    def __init__(self, child: int, reply: socket.socket, timeout_seconds: float) -> None:
        self._child = child
        self._reply = reply
        self._deadline = time.monotonic() + timeout_seconds
        self.status: int | None = None
        self.processes = 0

    def until_over(self) -> str:
        wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._reap()  # the program may have ended before anybody listened
        poll = select.poll()
        poll.register(wake_read, select.POLLIN)
        poll.register(self._reply, select.POLLIN)
        while True:
            if self.status is not None:
                self.processes = _count_processes()
                return "exit"
            left = self._deadline - time.monotonic()
            if left <= 0:
                return "wall_time"
            ready = dict(poll.poll(left * 1000 + 1))
            if self._reply.fileno() in ready:
                return "kill"
            if wake_read in ready:
                _drain(wake_read)
                if not self._reap():
                    # A program can send SIGCHLD as often as it likes; it must not keep this process busy.
                    time.sleep(_SPURIOUS_WAKE_SECONDS)

    def _reap(self) -> bool:
        """Collect what has ended, orphans of the program included."""
        reaped = False
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return reaped
            if not process:
                return reaped
            reaped = True
            if process == self._child:
                self.status = status


def _drain(descriptor: int) -> None:
    try:
        os.read(descriptor, 4096)
    except BlockingIOError:
        pass


def _reap_everything() -> None:
    """Kill all that is left and wait until it is gone: the proof that nothing of the run lives on."""
    while True:
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _count_processes() -> int:
    """Those of the program: the one that just ended and all that are left, without ourselves."""
    return sum(name.isdigit() for name in os.listdir("/proc"))


def _is_full(folder: str) -> bool:
    usage = os.statvfs(folder)
    return usage.f_bavail == 0 or usage.f_favail == 0
