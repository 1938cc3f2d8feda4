"""A NATS server of a cluster, as `hood cluster init` configures it, at a free port of the loopback."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fumehood.cluster.authority import ClusterAuthority
from fumehood.cluster.nats_config import write_config

PROGRAM = shutil.which("nats-server", path="/usr/sbin:/usr/bin:/usr/local/bin:/sbin:/bin")
_START_SECONDS, _PAUSE_SECONDS = 20, 0.02


@contextmanager
def running_nats(folder: Path) -> Iterator[ClusterAuthority]:
    """The authority that makes its members."""
    port = free_port()
    folder.mkdir(mode=0o700, parents=True)
    authority = ClusterAuthority.create(folder / "authority", [f"tls://127.0.0.1:{port}"])
    config = write_config(authority, folder / "nats", f"127.0.0.1:{port}", ["127.0.0.1"])
    process = subprocess.Popen([str(PROGRAM), "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_it_listens(port)
        yield authority
    finally:
        process.kill()
        process.wait()


def _wait_until_it_listens(port: int) -> None:
    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
        time.sleep(_PAUSE_SECONDS)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
