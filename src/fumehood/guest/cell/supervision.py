"""The cell's side of one run: starts its processes, watches them, ends them, and tells the host how it went.

A run is two processes in a process namespace of its own: the reaper as process 1, and the program. Ending the reaper
ends the namespace: the kernel kills and buries whatever is left before the reaper itself can be buried, which is
the proof that nothing of the run lives on. If the program has ended and the reaper has no child, nothing is left, and
the host has its answer before the reaper ends: every process of the namespace descends from one of the two.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ..contract import wire
from ..contract.cell_spec import CellSpec
from ..contract.paths import RUN_FOLDER
from ..isolation import kernel
from ..isolation.cgroup import RunCgroups
from ..isolation.listeners import Listeners
from ..isolation.steps import StepError
from ..program import shutdown
from ..program.peak_memory import peak_memory_bytes
from ..program.refusals import parse_refusal, read_refusal
from ..program.run_clock import RunClock, send_to_group
from .template import Death, RunTemplate

_RUNS_BETWEEN_COLLECTIONS = 1000
_CPU_CLOCK_OF_PROCESS = 2
_PAGE_BYTES = 4096


# Beyond these a run's way out is the same, and only what it sends elsewhere is not told.
MOST_PACKET_MONITORS = 64


class Forker:
    """What all runs of a cell have in common."""

    def __init__(self, spec: CellSpec, template: RunTemplate) -> None:
        self.spec, self.template = spec, template
        self._births = 0
        self.packet_monitors = 0
        """How many of its runs are watched for what they send where there is no listener."""
        self._namespaces = {
            kind: os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
            for kind, name in ((kernel.CLONE_NEWNS, "mnt"), (kernel.CLONE_NEWNET, "net"))
        }

    @property
    def shares_loopback(self) -> bool:
        return self.spec["shares_loopback"]

    @property
    def network(self) -> int:
        """The cell's own network namespace."""
        return self._namespaces[kernel.CLONE_NEWNET]

    def return_to(self, kind: int) -> None:
        """Back to the cell's own namespace of this kind."""
        kernel.setns(self._namespaces[kind], kind)

    def next_name(self) -> str:
        self._births += 1
        if self._births % _RUNS_BETWEEN_COLLECTIONS == 0:
            gc.collect()  # off by itself, because it would touch memory that all runs share
        return f"run-{self._births}"


class Run:
    """One run: on standby until `start_program`, then watched until it is over."""

    def __init__(self, forker: Forker, *, rehearses: bool, loopback: int | None = None) -> None:
        """`rehearses` is for when it is on standby. `loopback` is a network namespace for it to be in."""
        self._forker, self._rehearses = forker, rehearses
        self._loopback = loopback
        self.loopback_of: int | None = None
        """The workspace whose runs it shares its loopback with."""
        self._cgroups = RunCgroups(forker.spec["hierarchies"], forker.next_name())
        self.is_ready = False
        self.clock = RunClock(self._send_signal, self._send_to_group, self._send_usage)
        self.reply: socket.socket | None = None
        self.workspace: int | None = None
        """Which one it sees; a standby may be in one before there is a request."""
        self._folders: dict[str, int] = {}
        self._listeners: Listeners | None = None
        self._gateway: socket.socket | None = None
        try:
            self._cgroups.make(forker.spec["limits"])
            self.channel, theirs = wire.socket_pair()
            with theirs:
                self._spawn(theirs, self._cgroups.entrances())
        except OSError:
            self._cgroups.remove()
            raise

    def _spawn(self, theirs: socket.socket, entrances: list[int]) -> None:
        """The program is born where the sandbox of this run has its loopback, or will have it."""
        loopback = self._loopback
        try:
            self._reaper, self._process = self._forker.template.fork(
                [theirs.fileno(), *entrances],
                rehearses=self._rehearses,
                network=loopback,
                makes_network=self._forker.shares_loopback and loopback is None,
            )
        finally:
            wire.close_all(entrances)
        self.pidfd = os.pidfd_open(self._process)

    def open_loopback(self) -> int:
        """A descriptor of its network namespace, by which others enter it."""
        return os.open(f"/proc/{self._process}/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def wait_ready(self) -> StepError | None:
        """Reads the standby's first message: that it is ready, or which step failed."""
        data = self.channel.recv(wire.MAX_MESSAGE_BYTES)
        if data == b"ready":
            self.is_ready = True
            # Held open so that we can look into it when the program is gone, and so that the program's end does not
            # have to wait until the kernel has taken its mounts apart.
            self._run_folder = os.open(f"/proc/{self._process}/root{RUN_FOLDER}", os.O_PATH | os.O_CLOEXEC)
            self._mounts = os.open(f"/proc/{self._process}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            return self._open_usual_listeners()
        refusal = parse_refusal(data)
        if refusal is None or "failed" not in refusal:
            return StepError("starting a run", "its process ended before it was ready")
        return StepError(refusal["failed"], refusal["detail"])

    def _open_usual_listeners(self) -> StepError | None:
        """Ahead of time, so that no caller waits for it; not where another run may have them open."""
        if self._forker.shares_loopback:
            return None
        try:
            self._open_listeners(self._forker.spec["ports"])
        except StepError as error:
            return error
        return None

    def _open_listeners(self, ports: list[int]) -> None:
        if not ports:
            return
        if self._listeners is None:
            # Each has a filter that the kernel compiles for it, and frees on a queue that the whole host shares.
            is_watched = self._forker.packet_monitors < MOST_PACKET_MONITORS
            is_shared = self._forker.shares_loopback
            self._listeners = Listeners(self._process, is_watched=is_watched, is_shared=is_shared)
            self._forker.packet_monitors += self._listeners.is_watched
        self._listeners.open(ports, self._forker.network)

    def change_ports(self, ports: list[int]) -> None:
        """Changes the ports of a run under way. An open listener stays: the gateway refuses its connections."""
        if self._gateway is None or self._listeners is None:
            return
        for port in ports:
            with suppress(StepError):  # the program listens there itself, and has no way out by that port
                self._open_listeners([port])
        with suppress(OSError):  # the gateway has closed this way out
            self._listeners.pass_on(ports, self._gateway)

    def _connect(self, ports: list[int], gateway: int | None) -> None:
        if gateway is None:
            self._close_listeners()
            return
        self._gateway = socket.socket(fileno=gateway)
        self._open_listeners(ports)
        assert self._listeners is not None
        self._listeners.pass_on(ports, self._gateway)

    def _close_listeners(self) -> None:
        if self._listeners is not None:
            self._forker.packet_monitors -= self._listeners.is_watched
            self._listeners.close()
            self._listeners = None

    def attach_workspace(self, workspace: int, folders: dict[str, str]) -> None:
        """Mounts the folders of a sandbox in it, and unmounts those of another that were mounted ahead of time."""
        if self.workspace == workspace:
            return
        self.detach_workspace()
        self.workspace = workspace
        for target, place in folders.items():
            # A descriptor, because the sandbox may be closed and its workspace gone before we look into it.
            self._folders[target] = os.open(place, os.O_PATH | os.O_CLOEXEC)
            tree = kernel.clone_mount(place)
            try:
                with self._among_its_mounts():
                    kernel.attach_mount(tree, target)
            finally:
                os.close(tree)

    def detach_workspace(self) -> None:
        """No program has seen the folders yet."""
        if self.workspace is None:
            return
        with self._among_its_mounts():
            for target in self._folders:
                kernel.unmount(target)
        wire.close_all(list(self._folders.values()))
        self._folders, self.workspace = {}, None

    @contextmanager
    def _among_its_mounts(self) -> Iterator[None]:
        kernel.setns(self._mounts, kernel.CLONE_NEWNS)
        try:
            yield
        finally:
            self._forker.return_to(kernel.CLONE_NEWNS)

    def start_program(self, message: wire.Message, descriptors: list[int]) -> socket.socket:
        """Passes the request on; from here on the clock runs, and the host can end the run over the returned socket."""
        self._connect(message["ports"], descriptors.pop() if message["ports"] else None)
        if message["spare_memory_bytes"]:
            self._cgroups.add_memory(self._forker.spec["limits"], message["spare_memory_bytes"])
        self._was_full = self._is_disk_full()
        wire.send(self.channel, {"go": True}, tuple(descriptors[1:]))
        wire.close_all(descriptors[1:])
        self.reply = wire.packet_socket(descriptors[0])
        self.clock.start(message["timeout"], is_interruptible=message["interruptible"])
        return self.reply

    def handle_command(self) -> bool:
        """Reads a command of the host for this run; false when the run is to end."""
        assert self.reply is not None
        data = b""
        with suppress(ConnectionResetError):
            data = self.reply.recv(wire.MAX_MESSAGE_BYTES)
        return self.clock.handle_command(json.loads(data) if data else {"do": "end"})

    def _send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it has just ended
            signal.pidfd_send_signal(self.pidfd, number)

    def _send_to_group(self, number: int) -> None:
        """The program leads a session of its own, so that nothing of ours and of other runs is in its group."""
        send_to_group(self._process, number)

    def _send_usage(self) -> None:
        """What the session has used since its start, by the kernel's count."""
        assert self.reply is not None
        own_seconds = time.clock_gettime(~self._process << 3 | _CPU_CLOCK_OF_PROCESS)
        cpu_seconds = max(own_seconds, self._cgroups.cpu_seconds())
        peak = self._cgroups.peak_memory_bytes() or peak_memory_bytes(self._process)
        usage = {"cpu_ms": cpu_seconds * 1000, "peak_memory_bytes": peak}
        with suppress(OSError):  # the host is gone, which the next turn notices
            self.reply.send(json.dumps({"usage": usage}).encode())

    def end(self, ended_by: str) -> None:
        """Kill what is left, wait for the proof, and tell the host. What belongs to us is left to `clean_up`."""
        others = self._count_others() if ended_by == "exit" else 0
        is_alone = ended_by == "exit" and others == 0
        death = self._bury_program() if is_alone else self._kill_namespace()
        status = death.status
        outcome: dict[str, Any] = {
            "status": status if ended_by == "exit" else None,
            "ended_by": ended_by,
            # What it has waited for is all that its own death tells.
            "cpu_ms": max(death.cpu_us / 1000, self._cgroups.cpu_seconds() * 1000),
            "peak_memory_bytes": self._cgroups.peak_memory_bytes() or death.peak_memory_kib * 1024,
            "trouble": None if status == 0 else self._trouble(others),
        }
        assert self.reply is not None
        with suppress(OSError):  # the host is gone, and with it everyone who could want to know
            self.reply.send(json.dumps(outcome).encode())
        self.reply.close()
        self._close_network()
        self._has_reaper = is_alone

    def clean_up(self) -> None:
        """After `end`: the reaper, if it is still there, and what we hold. No caller waits for it."""
        if self._has_reaper:
            os.kill(self._reaper, signal.SIGKILL)
            self._forker.template.forget(self._reaper)
        self._close()

    def abandon(self) -> None:
        """A standby that never ran."""
        self._kill_namespace()
        self._close_network()
        self._close()

    def _kill_namespace(self) -> Death:
        """Returns how the program ended. The reaper can go only after the program, which is no child of it."""
        os.kill(self._reaper, signal.SIGKILL)
        death = self._bury_program()
        self._forker.template.bury(self._reaper)
        return death

    def _bury_program(self) -> Death:
        return self._forker.template.bury(self._process)

    def _close(self) -> None:
        self.channel.close()
        os.close(self.pidfd)
        wire.close_all(list(self._folders.values()))
        if self.is_ready:
            os.close(self._run_folder)
            os.close(self._mounts)
        self._cgroups.remove()

    def _close_network(self) -> None:
        self._close_listeners()
        if self._gateway is not None:
            self._gateway.close()

    def _trouble(self, others: int | None) -> dict[str, Any]:
        """Everything that can tell why a program failed."""
        return {
            "refusal": read_refusal(self.channel),
            "processes": (others or 0) + 1,
            "exhausted": shutdown.read_exhausted(self._run_folder),
            "disk_full": not self._was_full and self._is_disk_full(),
            **self._cgroups.failures(),
        }

    def _count_others(self) -> int | None:
        """Processes that the program has left behind, now that it has ended: they belong to the reaper.

        None if the kernel does not list them (without CONFIG_PROC_CHILDREN).
        """
        try:
            children = os.open(f"/proc/{self._reaper}/task/{self._reaper}/children", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            listed = b""
            while more := os.read(children, _PAGE_BYTES):
                listed += more
            return len(listed.split())
        finally:
            os.close(children)

    def _is_disk_full(self) -> bool:
        usages = [os.statvfs(folder) for folder in (self._run_folder, *self._folders.values())]
        return any(usage.f_bavail == 0 or usage.f_favail == 0 for usage in usages)
