"""Warm cells: started once for each policy, shared by all sandboxes with that policy, from any thread or event loop.

A cell is a process of its own, never a fork of this one. Nothing here belongs to an event loop: requests are single
messages, and answers come back on a socket that travels with each request.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import select
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from fumehood.backends.native.cgroups import CellCgroups, remove_stale
from fumehood.backends.native.host_facts import HostFacts
from fumehood.backends.native.prestart import Prestart, PrestartedInterpreter
from fumehood.backends.runs.link import GuestBusyError, GuestGoneError
from fumehood.errors import DOCTOR, StepFailedError
from fumehood.frozen import frozen
from fumehood.guest.contract import wire
from fumehood.guest.contract.cell_spec import CellSpec, HierarchySpec
from fumehood.guest.contract.limits import SANDBOX_UID
from fumehood.tenant import LOCAL, Tenant

_START_SECONDS = 30.0
_STOP_SECONDS = 5.0
# A cell that is there answers within this; with the host's grace it is less than a second.
_ANSWER_SECONDS = 0.7
# One that is not stopped may have a machine that is overloaded, or a large run to take apart.
_SLOW_SECONDS = 10.0
_MAX_STDERR_BYTES = 4096
# The first run in a new cell needs the processors; what is for other policies begins this much later.
_FIRST_RUN_SECONDS = 0.02
# Of all cells of this process: their cgroups have these in their names, whatever pool they are of.
_NUMBERS = itertools.count(1)

_REMEDIES = {
    "preloading modules": "Check environment.preload of the policy; what it needs has to be in environment.packages."
}


class CellProcess:
    """The host's end of one cell."""

    def __init__(self, interpreter: PrestartedInterpreter, cgroups: CellCgroups, owner: int | None) -> None:
        self._process, self._control = interpreter.process, interpreter.control
        self._stderr: int | None = interpreter.stderr
        self._stderr_text = ""
        self._cgroups = cgroups
        self._workspaces = itertools.count(1)
        self._open_workspaces: set[int] = set()
        self._posted: deque[wire.Message] = deque()
        self._posting = threading.Lock()
        self.sandbox_owner = owner
        """Host uid of the user inside, when it is not our own."""

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def is_idle(self) -> bool:
        return not self._open_workspaces

    def open_workspace(self) -> int:
        workspace = next(self._workspaces)
        self._open_workspaces.add(workspace)
        return workspace

    def close_workspace(self, workspace: int) -> None:
        self._open_workspaces.discard(workspace)
        self.post({"do": "close", "workspace": workspace})

    def send(self, message: wire.Message, descriptors: tuple[int, ...] = ()) -> None:
        """Never waits: GuestBusyError while the cell has not read enough of what was sent before."""
        if not self._is_sent(message, descriptors):
            raise GuestBusyError

    def wait_for_room(self) -> None:
        """Blocks for a while, or until there is. A busy cell reads later; a stopped one never does: GuestGoneError."""
        try:
            has_room = _poll(self._control, select.POLLOUT, _ANSWER_SECONDS)
        except ValueError:  # it was closed
            raise GuestGoneError from None
        if not has_room and self._is_stopped():
            raise GuestGoneError

    def post(self, message: wire.Message) -> None:
        """A message that a busy cell gets later. Never waits; a cell that is gone needs none."""
        with self._posting:
            self._posted.append(message)
            if len(self._posted) > 1:
                return  # a thread is at it
            with suppress(GuestGoneError):
                if not self._is_sent(message, ()):
                    threading.Thread(target=self._send_posted, name="fumehood-cell-messages", daemon=True).start()
                    return
            self._posted.clear()

    def _send_posted(self) -> None:
        try:
            while self._posted:
                self._send_patiently(self._posted[0])
                with self._posting:
                    self._posted.popleft()
        except GuestGoneError:
            with self._posting:
                self._posted.clear()

    def _send_patiently(self, message: wire.Message, descriptors: tuple[int, ...] = ()) -> None:
        """Blocks."""
        while not self._is_sent(message, descriptors):
            self.wait_for_room()

    def _is_sent(self, message: wire.Message, descriptors: tuple[int, ...]) -> bool:
        if not self.is_alive:
            raise GuestGoneError  # its socket may still be open, in a process that is about to die
        try:
            wire.send(self._control, message, descriptors, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.EBADF):
                raise
            raise GuestGoneError from error
        return True

    def is_lost(self) -> bool:
        """Whether it does not answer: at once if it is stopped, and else only after a while. Blocks."""
        ours, theirs = wire.socket_pair()
        with ours, theirs:
            try:
                self._send_patiently({"do": "answer"}, (theirs.fileno(),))
            except GuestGoneError:
                return True
            theirs.close()
            if _poll(ours, select.POLLIN, _ANSWER_SECONDS):
                return False
            return self._is_stopped() or not _poll(ours, select.POLLIN, _SLOW_SECONDS)

    def _is_stopped(self) -> bool:
        """By a signal. Our child only waits for the cell, which is its child; False also where that is not known."""
        outer = self._process.pid
        try:
            cell = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0]
            return Path(f"/proc/{cell}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
        except (OSError, IndexError):
            return False

    def hint(self, message: wire.Message) -> None:
        """A message that may be lost."""
        with suppress(OSError):
            self._control.send(json.dumps(message).encode(), socket.MSG_DONTWAIT)

    def last_words(self) -> str:
        """What the cell wrote to its standard error: empty unless it crashed."""
        if self._stderr is None:
            return self._stderr_text
        return os.pread(self._stderr, _MAX_STDERR_BYTES, 0).decode("utf-8", "replace").strip()

    def wait_ready(self) -> None:
        if not _poll(self._control, select.POLLIN, _START_SECONDS):
            raise StepFailedError("starting a cell", f"it was not ready after {_START_SECONDS:.0f} s")
        message = None
        with suppress(ConnectionError):  # as good as the end: it died without reading
            message, _ = wire.receive(self._control)
        if message is None:
            raise StepFailedError("starting a cell", self.last_words() or "it ended before it was ready")
        if "failed" in message:
            remedy = _REMEDIES.get(message["failed"], DOCTOR)
            raise StepFailedError(message["failed"], message["detail"], remedy=remedy)

    def kill(self) -> None:
        """Kills a cell that does not answer, and would not notice a closed socket."""
        self._process.kill()
        self.stop()

    def stop(self) -> None:
        """Ends the cell and with it every run in it; returns when its processes are gone."""
        self._control.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._stderr is not None:
            self._stderr_text = self.last_words()
            os.close(self._stderr)
            self._stderr = None
        self._cgroups.remove()


def _poll(channel: socket.socket, event: int, seconds: float) -> bool:
    """Not select(), which knows the first 1024 descriptors only: an application may have more."""
    poll = select.poll()
    poll.register(channel, event)
    return bool(poll.poll(seconds * 1000))


def start_cell(
    spec: CellSpec, facts: HostFacts, number: int, prestart: Prestart, tenant: Tenant = LOCAL
) -> CellProcess:
    with ExitStack() as undo:
        cgroups = CellCgroups(list(facts.hierarchies), number, tenant)
        undo.callback(cgroups.remove)
        cgroups.make(spec["uid_base"] if facts.is_root else None)
        interpreter = prestart.take()
        undo.pop_all()
    cell = CellProcess(interpreter, cgroups, spec["uid_base"] + SANDBOX_UID if facts.is_root else None)
    try:
        with suppress(ConnectionError):  # it is dead already, and `wait_ready` raises why
            _send_spec(interpreter, spec, facts, cgroups)
        cell.wait_ready()
    except BaseException:
        cell.stop()
        raise
    return cell


def _send_spec(interpreter: PrestartedInterpreter, spec: CellSpec, facts: HostFacts, cgroups: CellCgroups) -> None:
    """Sends the specification and its descriptors; the specification has their positions in the message."""
    opened: list[int] = []

    def add(descriptor: int) -> int:
        opened.append(descriptor)
        return len(opened) - 1

    try:
        hierarchies: list[HierarchySpec] = [
            {
                "version": hierarchy.version,
                "controllers": list(hierarchy.controllers),
                "descriptor": add(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)),
            }
            for hierarchy, folder in zip(facts.hierarchies, cgroups.folders, strict=True)
        ]
        entrances = [add(os.open(path, os.O_WRONLY | os.O_CLOEXEC)) for path in cgroups.entrances()]
        host = add(os.pidfd_open(os.getpid()))
        complete: CellSpec = {**spec, "hierarchies": hierarchies, "entrances": entrances, "host_process": host}
        data = add(wire.sealed_file(dict(complete), b""))
        wire.send(interpreter.control, {"spec": data}, tuple(opened))
    finally:
        wire.close_all(opened)


@frozen
class PoolSizes:
    """How much a process keeps ready: little for a user's programs, more in a server with many policies."""

    idle_cells: int = 4
    """Most cells without a sandbox that stay warm, of all tenants together; each takes some 7 MiB."""
    interpreters: int = 1
    """Interpreters that wait for the next cells of whatever policy; 0 for none."""


class CellPool:
    """Cells by key (tenant, policy, environment). Safe from any thread; an unused cell ends by itself."""

    def __init__(self, sizes: PoolSizes | None = None) -> None:
        self._sizes = sizes or PoolSizes()
        self.prestart = Prestart(renews=True, size=self._sizes.interpreters)
        self._lock = threading.Lock()
        self._cells: dict[str, CellProcess] = {}
        self._starting: dict[str, threading.Lock] = {}
        self._settling = threading.Lock()
        self._is_closed = False

    def warm(self, key: str) -> CellProcess | None:
        """A cell that is up, without waiting for anything."""
        with self._lock:
            cell = self._cells.get(key)
        return cell if cell and cell.is_alive else None

    def acquire(
        self, key: str, facts: HostFacts, build_spec: Callable[[], CellSpec], tenant: Tenant = LOCAL
    ) -> CellProcess:
        """Blocks while one is started: for worker threads."""
        with self._lock:
            turn = self._starting.setdefault(key, threading.Lock())
        with turn:
            cell = self.warm(key)
            if cell is None:
                self.discard(key)
                self._sweep(facts)
                cell = start_cell(self._apart(build_spec), facts, next(_NUMBERS), self.prestart, tenant)
                with self._lock:
                    self._cells[key] = cell
                self._settle_later(key)
            return cell

    def _apart(self, build_spec: Callable[[], CellSpec]) -> CellSpec:
        """A specification whose range of uids no other cell here has: some things the kernel counts for a uid."""
        with self._lock:
            taken = {cell.sandbox_owner for cell in self._cells.values()}
        while (spec := build_spec())["uid_base"] + SANDBOX_UID in taken:
            pass  # one in many thousands is taken, and they are chosen at random
        return spec

    def _settle_later(self, newest: str) -> None:
        timer = threading.Timer(_FIRST_RUN_SECONDS, self._settle, (newest,))
        timer.daemon = True
        timer.start()

    def _settle(self, newest: str) -> None:
        """What no caller should wait for: cells that have to go, and an interpreter for the next policy."""
        with self._settling:
            if not self._is_closed:
                self._trim(newest)
                self.prestart.renew()

    def _trim(self, newest: str) -> None:
        """A cell ends by itself after a while; a process that uses many policies should not have to wait for that."""
        with self._lock:
            dead = [key for key, cell in self._cells.items() if not cell.is_alive]
            idle = [key for key, cell in self._cells.items() if cell.is_alive and cell.is_idle and key != newest]
        for key in dead + idle[: max(0, len(idle) - self._sizes.idle_cells)]:
            self.discard(key)

    def discard(self, key: str) -> None:
        with self._lock:
            cell = self._cells.pop(key, None)
        if cell:
            cell.stop()

    def retire(self, key: str, cell: CellProcess) -> None:
        """Kills a cell that does not answer, and removes it unless it was replaced already."""
        with self._lock:
            if self._cells.get(key) is cell:
                del self._cells[key]
        cell.kill()

    def close(self) -> None:
        with self._settling:
            self._is_closed = True
        self.prestart.abandon()
        for key in list(self._cells):
            with suppress(OSError):
                self.discard(key)

    def _sweep(self, facts: HostFacts) -> None:
        """What a killed process left behind goes with the first cell of the next one."""
        if not self._cells:
            remove_stale(list(facts.hierarchies))
