"""Processes of a sandbox, each with any number of readers.

A process goes on when its readers leave, and what it writes meanwhile is read and dropped, as E2B does it. A reader
that does not read holds back the process, which then waits in its write; beside others it is cut off after a while.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from fumehood.errors import SandboxError, UsageError
from fumehood.events import Event, Finished
from fumehood.frozen import frozen
from fumehood.remote.handlers.parts import ServedRun
from fumehood.results import RunResult
from fumehood.sandbox.request import RunOptions
from fumehood.server.e2b.environment import variables_for
from fumehood.server.e2b.errors import BodyError, CallFailure, MissingError, failure_of
from fumehood.server.e2b.paths import inner_path
from fumehood.server.e2b.usage import SandboxUsage
from fumehood.server.sandboxes.placement import PlacedSandbox

_log = logging.getLogger(__name__)
_MOST = 128
_MOST_READERS = 16
_WAITING_EVENTS = 2
_PATIENCE_SECONDS = 10.0
_SIGNALS = {
    "SIGNAL_SIGKILL": signal.SIGKILL,
    "SIGNAL_SIGTERM": signal.SIGTERM,
    9: signal.SIGKILL,
    15: signal.SIGTERM,
}
_TOO_SLOW = CallFailure("resource_exhausted", 429, "the reader was too slow and held back the others; connect again")


@frozen
class ProcessSpec:
    """What is to be started."""

    command: str
    arguments: Sequence[str]
    variables: Mapping[str, str]
    cwd: str
    tag: str | None
    terminal: tuple[int, int] | None
    takes_input: bool
    seconds: float | None

    @property
    def config(self) -> dict[str, Any]:
        cwd = {"cwd": self.cwd} if self.cwd else {}
        return {"cmd": self.command, "args": list(self.arguments), "envs": dict(self.variables), **cwd}


class Reader:
    """One who reads along, from now on."""

    def __init__(self) -> None:
        self._events = asyncio.Queue[Event | CallFailure](_WAITING_EVENTS)
        self._cut = asyncio.Event()

    async def put(self, event: Event | CallFailure) -> None:
        await self._events.put(event)

    async def next(self) -> Event | CallFailure:
        """The last one is `Finished`, or a failure."""
        waiting, cut = asyncio.ensure_future(self._events.get()), asyncio.ensure_future(self._cut.wait())
        try:
            await asyncio.wait([waiting, cut], return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else _TOO_SLOW
        finally:
            waiting.cancel()
            cut.cancel()

    def cut_off(self) -> None:
        self.drop()
        self._cut.set()

    def drop(self) -> None:
        """Whoever waits to put something is let go."""
        while not self._events.empty():
            self._events.get_nowait()


class Process:
    def __init__(self, pid: int, spec: ProcessSpec, run: ServedRun) -> None:
        self.pid, self.spec, self._run = pid, spec, run
        self._readers: set[Reader] = set()
        self.result: RunResult | None = None

    def add_reader(self) -> Reader:
        if len(self._readers) >= _MOST_READERS:
            raise UsageError(f"the process has {_MOST_READERS} readers; more at once cannot be")
        reader = Reader()
        self._readers.add(reader)
        return reader

    def remove_reader(self, reader: Reader) -> None:
        self._readers.discard(reader)
        reader.drop()

    async def read(self) -> None:
        """Until its end: everything that it writes, for those who read along."""
        try:
            async for event in self._run.stream():
                if isinstance(event, Finished):
                    self.result = event.result
                await self._hand_out(event)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await self._hand_out(failure_of(error) if isinstance(error, UsageError) else self._lost(error))

    def _lost(self, error: Exception) -> CallFailure:
        if not isinstance(error, SandboxError):
            _log.error("a process was lost: unexpected %s", type(error).__name__, exc_info=error)
            return CallFailure("unavailable", 503, "the process was lost; the server's own log has the reason")
        return CallFailure("unavailable", 503, f"the process was lost: {error}")

    async def _hand_out(self, event: Event | CallFailure) -> None:
        readers = list(self._readers)
        if not readers:
            return
        puts = {asyncio.ensure_future(reader.put(event)): reader for reader in readers}
        patience = _PATIENCE_SECONDS if len(readers) > 1 else None
        try:
            _, late = await asyncio.wait(puts, timeout=patience)
            for put in late:
                self._readers.discard(puts[put])
                puts[put].cut_off()
        finally:
            for put in puts:
                put.cancel()

    async def write(self, data: bytes) -> None:
        await self._run.write(data)

    async def close_stdin(self) -> None:
        await self._run.close_stdin()

    async def resize(self, columns: int, rows: int) -> None:
        await self._run.resize(columns, rows)

    async def send_signal(self, name: object) -> None:
        number = _SIGNALS.get(name) if isinstance(name, str | int) else None
        if number is None:
            raise UsageError("the signal must be SIGNAL_SIGKILL or SIGNAL_SIGTERM")
        if number == signal.SIGKILL:
            await self._run.kill()
        else:
            await self._run.send_signal(number)


class Processes:
    """By our own numbers: those of the kernel are not for outside."""

    def __init__(self, box: PlacedSandbox, variables: Mapping[str, str], usage: SandboxUsage) -> None:
        self._box, self._variables, self._usage = box, variables, usage
        self._numbers = count(1000)
        self._running: dict[int, Process] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, spec: ProcessSpec) -> tuple[Process, Reader]:
        if len(self._running) >= _MOST:
            raise BodyError("resource_exhausted", f"the sandbox has {_MOST} processes; end some of them")
        cwd = inner_path(spec.cwd)
        env = variables_for(self._box, cwd) | dict(self._variables) | dict(spec.variables)
        longest = self._box.policy.resources.timeout
        options: RunOptions = {
            "argv": [spec.command, *spec.arguments],
            "env": env,
            "cwd": cwd,
            "timeout": min(spec.seconds, longest) if spec.seconds else None,
        }
        if not spec.takes_input and not spec.terminal:
            options["stdin"] = None
        run = await self._box.start(terminal=spec.terminal, **options)
        process = Process(next(self._numbers), spec, run)
        reader = process.add_reader()
        self._running[process.pid] = process
        task = asyncio.ensure_future(self._read(process))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return process, reader

    async def _read(self, process: Process) -> None:
        try:
            await process.read()
        finally:
            del self._running[process.pid]
            self._usage.add(process.result)

    def list(self) -> list[Process]:
        return list(self._running.values())

    def find(self, selector: Mapping[str, Any]) -> Process:
        """By `pid`, or by `tag`."""
        pid, tag = selector.get("pid"), selector.get("tag")
        with suppress(ValueError, TypeError):
            if pid is not None and (found := self._running.get(int(pid))):
                return found
        for process in self._running.values():
            if tag is not None and process.spec.tag == tag:
                return process
        raise MissingError(f"there is no process {pid if pid is not None else tag!r}")
