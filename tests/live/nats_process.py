"""A process with agents on NATS, for tests that end, stop and disturb it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import anyio
import anyio.to_thread

from fumehood.runtime import Grants, Message, MessageContext, RuntimeAgent, handles
from fumehood.runtime.nats import NatsRuntime

_CONTEXT = multiprocessing.get_context("forkserver")


class Job(Message):
    """Leaves a line in a file, which is its effect, and waits for ever if it is to `hang`."""

    number: int
    hang: bool = False


class Done(Message):
    by: str
    handled: int


class Note(Message):
    number: int


NOTES = Grants(subscribe=["notes"])


@dataclass(frozen=True)
class Place:
    """Where a process meets others, and where it leaves its lines."""

    url: str
    space: str
    lease: float
    folder: str

    def lines(self, name: str = "jobs") -> list[str]:
        path = Path(self.folder, name)
        return path.read_text().splitlines() if path.exists() else []

    def runtime(self, process: str) -> NatsRuntime:
        return NatsRuntime(self.url, space=self.space, process=process, lease=self.lease, audit=False)


class Worker(RuntimeAgent):
    def __init__(self, place: Place, process: str) -> None:
        self._place, self._process, self._handled = place, process, 0

    @handles
    async def work(self, message: Job) -> Done:
        self._handled += 1
        self._leave("jobs", f"{message.number} {self._process}")
        if message.hang:
            try:
                await anyio.sleep_forever()
            finally:
                self._leave("cancelled", f"{message.number} {self._process}")
        return Done(by=self._process, handled=self._handled)

    @handles
    async def note(self, message: Note, context: MessageContext) -> None:
        self._leave("notes", f"{message.number} {self._process}")

    def _leave(self, name: str, line: str) -> None:
        descriptor = os.open(Path(self._place.folder, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{line}\n".encode())
        os.close(descriptor)


async def register(runtime: NatsRuntime, place: Place, *, redeliver: bool = False) -> None:
    await runtime.register(
        "worker",
        Worker,
        make=lambda _: Worker(place, runtime.process),
        grants=NOTES,
        subscriptions=["notes"],
        redeliver=redeliver,
    )


def _main(place: Place, name: str, redeliver: bool, ready: Connection) -> None:
    async def run() -> None:
        async with place.runtime(name) as runtime:
            await register(runtime, place, redeliver=redeliver)
            ready.send("ready")
            await anyio.sleep_forever()

    asyncio.run(run())


@asynccontextmanager
async def process(place: Place, name: str, *, redeliver: bool = False) -> AsyncIterator[BaseProcess]:
    """One that has registered its agents; whatever became of it, it is gone afterwards."""
    _CONTEXT.set_forkserver_preload(["fumehood.runtime.nats", "nats.aio.client"])
    heard, said = _CONTEXT.Pipe(duplex=False)
    child = _CONTEXT.Process(target=_main, args=(place, name, redeliver, said), daemon=True)
    child.start()
    try:
        assert await anyio.to_thread.run_sync(heard.poll, 60), "the process did not register its agents"
        assert heard.recv() == "ready"
        yield child
    finally:
        kill(child)
        heard.close()
        said.close()


def kill(child: BaseProcess) -> None:
    if child.pid is not None and child.is_alive():
        os.kill(child.pid, signal.SIGKILL)
    child.join()
