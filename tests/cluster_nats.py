"""A NATS server of the tests' own: Debian's, with the configuration of a cluster, at a free port of the loopback."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from requirements import require

from fumehood.cluster.authority import ClusterAuthority
from fumehood.cluster.nats_config import write_config

PROGRAM = shutil.which("nats-server", path="/usr/sbin:/usr/bin:/usr/local/bin:/sbin:/bin")
_START_SECONDS = 20
_PAUSE_SECONDS = 0.01


class NatsServer:
    """`folder` is that of the cluster, as `hood cluster init` makes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.authority = ClusterAuthority.create(folder / "authority", [f"tls://127.0.0.1:{self.port}"])
        self._config = write_config(self.authority, folder / "nats", f"127.0.0.1:{self.port}", ["127.0.0.1"])
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert PROGRAM is not None
        with open(self.folder / "nats.log", "ab") as log:
            self.process = subprocess.Popen([PROGRAM, "-c", str(self._config)], stdout=log, stderr=log)
        end = time.monotonic() + _START_SECONDS
        while not self._answers():
            assert self.process.poll() is None, (self.folder / "nats.log").read_text()
            assert time.monotonic() < end, "nats-server does not listen"
            time.sleep(_PAUSE_SECONDS)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def running() -> Iterator[NatsServer]:
    require(PROGRAM, "needs nats-server")
    with tempfile.TemporaryDirectory(prefix="hood-nats-", dir="/var/tmp") as folder:
        server = NatsServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.kill()
