"""A cluster of the tests' own: NATS, a server in a thread of the test process, and workers that are processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import cluster_nats
import hood_server
from hood_server import RunningServer
from live.loaded_hood import start_hood
from tcp_line import TcpLine

from fumehood.audit import AuditLog
from fumehood.cluster.folder import FOLDER, SERVER_FILE, WORKER_FILE

_READY = "is ready"
_SECONDS, _PAUSE_SECONDS = 30, 0.02


class WorkerProcess:
    """`hood worker`, with credentials that are made for it."""

    def __init__(self, nats: cluster_nats.NatsServer, name: str, *options: str, tenants: tuple[str, ...] = ()) -> None:
        self.name, self.folder = name, nats.folder / name
        self.folder.mkdir(mode=0o700)
        self.line = TcpLine(nats.port)
        credentials = nats.authority.make_member(name, "worker", tenants=tenants)
        replace(credentials, urls=(f"tls://127.0.0.1:{self.line.port}",)).write(self.folder / WORKER_FILE)
        self._options = options
        self.process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        command = ("worker", "--folder", str(self.folder), *self._options)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FUMEHOOD_SERVER")}
        process = start_hood(*command, stderr=subprocess.PIPE, text=True, env=environment)
        assert process.stderr is not None
        for line in process.stderr:
            if _READY in line:
                return process
        raise AssertionError(f"the worker ended with {process.wait()}")

    def start_again(self) -> None:
        self.process = self._start()

    def log_of(self, tenant: str) -> AuditLog:
        folder = self.folder / "worker" / "tenants" / tenant
        for each in (folder.parent, folder):
            FOLDER.make(each)  # as the worker makes them, who may not have opened anything yet
        return AuditLog.at(folder / "audit")

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
        code = self.process.wait(60)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


def wait_until_gone(server: RunningServer) -> None:
    """Until the server knows no worker any more."""
    wait_until(lambda: not server.workers())


def wait_for_workers(server: RunningServer, count: int) -> None:
    """Until the server knows so many that are ready."""
    wait_until(lambda: len([worker for worker in server.workers() if worker["state"] == "ready"]) >= count)


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + _SECONDS
    while not holds():
        assert time.monotonic() < end, "it does not come to hold"
        time.sleep(_PAUSE_SECONDS)


class RunningCluster:
    def __init__(self, nats: cluster_nats.NatsServer, stack: ExitStack) -> None:
        self.nats, self._stack = nats, stack
        nats.authority.make_member("server", "server").write(nats.folder / SERVER_FILE)

    def worker(self, name: str, *options: str, tenants: tuple[str, ...] = ()) -> WorkerProcess:
        worker = WorkerProcess(self.nats, name, *options, tenants=tenants)
        self._stack.callback(worker.line.close)
        self._stack.callback(worker.kill)
        return worker

    def server(self, **settings: object) -> RunningServer:
        """Knows the workers that were started before it."""
        place = {"cluster": str(self.nats.folder), "strict": False, "private_networks": [hood_server.TENANT]}
        return self._stack.enter_context(hood_server.running_server(**place, **settings))


@contextmanager
def running_cluster() -> Iterator[RunningCluster]:
    with ExitStack() as stack:
        yield RunningCluster(stack.enter_context(cluster_nats.running()), stack)
