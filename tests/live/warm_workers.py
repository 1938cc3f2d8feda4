"""Workers of a cluster that start at once, because they are forked from a process that has everything imported."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from cluster_nats import NatsServer
from tcp_line import TcpLine

from fumehood.cluster.credentials import MemberCredentials
from fumehood.cluster.folder import WORKER, WORKER_FILE
from fumehood.cluster.lease import LeaseTimes
from fumehood.cluster.worker import ClusterWorker
from fumehood.cluster.worker_service import WorkerOffer

_CONTEXT = multiprocessing.get_context("forkserver")
_IMPORTED = ["fumehood.cluster.worker", "fumehood.backends.native", "nats.aio.client", "live.warm_workers"]
_SECONDS = 60


class WarmWorker:
    """One with credentials of its own; `start` after `kill` begins its next epoch."""

    def __init__(
        self,
        nats: NatsServer,
        name: str,
        *,
        slots: int = 16,
        times: LeaseTimes | None = None,
        line: TcpLine | None = None,
    ) -> None:
        """`line` is its way to NATS, if that is not the direct one."""
        _CONTEXT.set_forkserver_preload(_IMPORTED)
        self.name, self._folder = name, nats.folder / name
        self._slots, self._times = slots, times or LeaseTimes()
        self._folder.mkdir(mode=0o700)
        port = nats.port if line is None else line.port
        credentials = nats.authority.make_member(name, "worker")
        replace(credentials, urls=(f"tls://127.0.0.1:{port}",)).write(self._folder / WORKER_FILE)
        self._process: BaseProcess | None = None

    def start(self) -> None:
        """Returns when servers can use it."""
        heard, said = _CONTEXT.Pipe(duplex=False)
        arguments = (self._folder, self._slots, self._times.lease, said)
        self._process = _CONTEXT.Process(target=_main, args=arguments, daemon=True)
        self._process.start()
        said.close()
        try:
            assert heard.poll(_SECONDS), "the worker does not become ready"
            assert heard.recv() == "ready"
        finally:
            heard.close()

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        if self._process is not None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
            self._process.join()
            self._process = None


def _main(folder: Path, slots: int, lease: float, said: Connection) -> None:
    credentials = MemberCredentials.read(folder / WORKER_FILE)
    offer = WorkerOffer(slots, ("native",), {}, "tests")

    async def work() -> None:
        worker = ClusterWorker(credentials, folder / WORKER, offer, LeaseTimes(lease))
        await worker.run(0.0, lambda: said.send("ready"))

    asyncio.run(work())
