"""QEMU as a program in a native sandbox that denies everything: what a machine's escape would find is a second wall.

The sandbox has no mounts, no network and no rules. QEMU reads its own files below /usr, and has everything else as a
descriptor: the machine's memory, its disks, and sockets to the host. The limits on memory and processors are those of
the machine as a whole.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial

from fumehood.backends.native.cell_spec import build_cell_spec
from fumehood.backends.native.cells import CellPool, CellProcess
from fumehood.backends.native.host_facts import HostFacts
from fumehood.backends.runs.answers import Answer, parse_answer
from fumehood.backends.runs.link import GuestBusyError, GuestGoneError
from fumehood.concurrency.threads import run_whole
from fumehood.errors import StepFailedError
from fumehood.guest.contract import wire
from fumehood.guest.contract.cell_spec import CellSpec
from fumehood.policy import Policy
from fumehood.tenant import LOCAL, Tenant

MIB = 1024 * 1024
_LAST_WORDS_BYTES = 4096
_KILL_SECONDS = 5.0
# Threads of QEMU's own; it cannot start another program anyway.
_PROCESSES = 64
# What it may write to files of its own, of which it has none; the state of a machine is such a file of ours.
_DISK_BYTES = 16 * MIB
_HEADER: wire.Message = {
    "kind": "program",
    "language": "",
    "interpreter": None,
    "commands": None,
    "script": None,
    "source_bytes": 0,
    "environment": {},
    "cwd": "",
    "terminal": None,
    "leaves": None,
    "takes": None,
}


class Confinement:
    """Starts programs in native sandboxes of its own. Safe from any thread; starting one blocks."""

    def __init__(self, facts: HostFacts) -> None:
        self.facts = facts
        self._cells = CellPool()

    def start(
        self, command: Sequence[str], descriptors: Sequence[int], memory_bytes: int, cpus: float, tenant: Tenant
    ) -> ConfinedProcess:
        """The descriptors are the program's from 3 on; the caller keeps its own."""
        policy = confining_policy(memory_bytes, cpus)

        def build() -> CellSpec:
            # Itself, and with it its libraries: no shell, and no other program of the system.
            return {**build_cell_spec(policy, self.facts), "executables": [command[0]]}

        whose = f"{tenant.name} {tenant.cpu_weight} {tenant.memory_bytes}"
        acquire = partial(self._cells.acquire, f"{whose} {policy.digest} {command[0]}", self.facts, build, tenant)
        try:
            return _start(acquire(), command, descriptors)
        except GuestGoneError:
            # An idle cell may end just then: by itself, or because others are needed.
            pass
        try:
            return _start(acquire(), command, descriptors)
        except GuestGoneError as error:
            raise StepFailedError("starting QEMU", "the sandbox around it has ended") from error

    def close(self) -> None:
        self._cells.close()


def confining_policy(memory_bytes: int, cpus: float) -> Policy:
    """Denies all that can be denied."""
    return Policy(
        backend="native",
        resources={
            "memory": memory_bytes,
            "cpus": cpus,
            "processes": _PROCESSES,
            "disk": _DISK_BYTES,
        },
    )


def _start(cell: CellProcess, command: Sequence[str], descriptors: Sequence[int]) -> ConfinedProcess:
    with ExitStack() as stack:
        failed = stack.enter_context(ExitStack())
        ours, theirs = wire.socket_pair()
        failed.enter_context(ours)
        stack.enter_context(theirs)
        data = wire.sealed_file({**_HEADER, "arguments": list(command)}, b"")
        stack.callback(os.close, data)
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        stack.callback(os.close, nothing)
        words, their_words = os.pipe2(os.O_CLOEXEC)
        failed.callback(os.close, words)
        stack.callback(os.close, their_words)
        os.set_blocking(words, False)
        workspace = cell.open_workspace()
        failed.callback(cell.close_workspace, workspace)
        message: wire.Message = {
            "do": "run",
            "workspace": workspace,
            "spare_memory_bytes": 0,
            "interruptible": False,
            "keeps_tmp": False,
            "timeout": None,
            "ports": [],
        }
        sent = (theirs.fileno(), data, nothing, their_words, their_words, *descriptors)
        while True:
            try:
                cell.send(message, sent)
                break
            except GuestBusyError:
                cell.wait_for_room()
        failed.pop_all()
    return ConfinedProcess(cell, workspace, ours, words)


class ConfinedProcess:
    """A program under way. Belongs to one event loop from `watch` on."""

    def __init__(self, cell: CellProcess, workspace: int, reply: socket.socket, words: int) -> None:
        self._cell, self._workspace, self._reply, self._words = cell, workspace, reply, words
        self._said = b""
        self._ended: asyncio.Future[Answer | None] | None = None
        self._is_closed = False

    def watch(self) -> None:
        loop = asyncio.get_running_loop()
        self._reply.setblocking(False)
        self._ended = loop.create_future()
        loop.add_reader(self._reply.fileno(), self._read_end, loop)

    def _read_end(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._reply.fileno())
        assert self._ended is not None
        try:
            data = self._reply.recv(wire.MAX_MESSAGE_BYTES)
        except OSError:
            data = b""
        if not self._ended.done():
            self._ended.set_result(parse_answer(data) if data else None)

    async def wait(self, seconds: float) -> Answer | None:
        """How it ended; None when it has not, or when the sandbox around it is gone."""
        assert self._ended is not None
        try:
            return await asyncio.wait_for(asyncio.shield(self._ended), seconds)
        except TimeoutError:
            return None

    def last_words(self) -> str:
        """What it wrote to its standard streams."""
        try:
            while len(self._said) < _LAST_WORDS_BYTES and (more := os.read(self._words, _LAST_WORDS_BYTES)):
                self._said += more
        except OSError:
            pass
        return self._said.decode("utf-8", "replace").strip()

    async def close(self) -> None:
        """Kills it. When this returns its processes are gone, or the cell has ended with all of them."""
        if self._is_closed:
            return
        self._is_closed = True
        assert self._ended is not None
        try:
            if not self._ended.done():
                self._kill()
                await asyncio.wait([self._ended], timeout=_KILL_SECONDS)
        finally:
            if not self._ended.done():
                asyncio.get_running_loop().remove_reader(self._reply.fileno())
            self._release()

    def abandon(self) -> None:
        """`close` for one that was never watched. Blocks."""
        self._kill()
        poll = select.poll()
        poll.register(self._reply, select.POLLIN)
        poll.poll(_KILL_SECONDS * 1000)
        self._release()

    def _kill(self) -> None:
        """The cell kills the run, and answers when its process namespace is empty."""
        with suppress(OSError):
            self._reply.send(b'{"do": "end"}')

    def _release(self) -> None:
        self.last_words()
        self._reply.close()
        os.close(self._words)
        self._cell.close_workspace(self._workspace)


async def start_confined(
    confinement: Confinement,
    command: Sequence[str],
    descriptors: Sequence[int],
    *,
    memory_bytes: int,
    cpus: float = 1.0,
    tenant: Tenant = LOCAL,
) -> ConfinedProcess:
    """In a thread, because a cell may have to be started for it.

    A caller that is cancelled, also by a timeout, waits for that thread all the same: it sends the descriptors, whose
    numbers would be other files' if they were closed meanwhile, and what it has started has to be ended.
    """
    start = partial(confinement.start, command, descriptors, memory_bytes, cpus, tenant)
    process = await run_whole(start, ConfinedProcess.abandon)
    process.watch()
    return process
