"""NATS servers of the tests' own: Debian's, on the loopback, with a folder of their own, ended afterwards."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from requirements import require

from fumehood.runtime.nats import ProcessPermissions

PASSWORD = "not-a-secret"
ADMINISTRATOR = "administrator"


class NatsServer:
    """One server; `start` after `kill` continues with what it has stored."""

    def __init__(self, folder: Path, port: int, config: str) -> None:
        self._folder, self.port = folder, port
        (folder / "nats.conf").write_text(config)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def url_of(self, user: str) -> str:
        return f"nats://{user}:{PASSWORD}@127.0.0.1:{self.port}"

    def start(self) -> None:
        program = shutil.which("nats-server")
        require(program, "needs nats-server")
        assert program is not None
        log = self._folder / "log"
        with log.open("wb") as written:
            command = [program, "-c", str(self._folder / "nats.conf")]
            self._process = subprocess.Popen(command, stdout=written, stderr=written)
        while b"Server is ready" not in log.read_bytes():
            if self._process.poll() is not None:
                raise AssertionError(f"nats-server did not start: {log.read_text()}")
            time.sleep(0.01)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None


@contextmanager
def running(users: Mapping[str, ProcessPermissions] | None = None, extra: str = "") -> Iterator[NatsServer]:
    """A server; with `users` everyone has a password and may do what is listed, and the administrator everything."""
    with _folder() as folder:
        (port,) = free_ports(1)
        server = NatsServer(folder, port, _config(folder, port) + _accounts(users) + extra)
        server.start()
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def running_cluster(count: int = 3) -> Iterator[list[NatsServer]]:
    with _folder() as folder, ExitStack() as stack:
        free = free_ports(2 * count)
        ports, routes = free[:count], free[count:]
        known = ", ".join(f"nats-route://127.0.0.1:{port}" for port in routes)
        servers: list[NatsServer] = []
        for number, (port, route) in enumerate(zip(ports, routes, strict=True)):
            own = folder / str(number)
            own.mkdir()
            cluster = f"cluster {{ name: tests, listen: 127.0.0.1:{route}, routes: [{known}] }}\n"
            server = NatsServer(own, port, _config(own, port) + f"server_name: n{number}\n" + cluster)
            server.start()
            stack.callback(server.kill)
            servers.append(server)
        yield servers


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="hood-nats-", dir="/var/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _config(folder: Path, port: int) -> str:
    store = f'jetstream {{ store_dir: "{folder}/store", max_mem: 256M, max_file: 1T }}\n'
    return f"listen: 127.0.0.1:{port}\nlogfile_size_limit: 1M\n{store}"


def _accounts(users: Mapping[str, ProcessPermissions] | None) -> str:
    if users is None:
        return ""
    listed: Sequence[object] = [
        {"user": ADMINISTRATOR, "password": PASSWORD},
        *(
            {
                "user": name,
                "password": PASSWORD,
                "permissions": {"publish": list(allowed.publish), "subscribe": list(allowed.subscribe)},
            }
            for name, allowed in users.items()
        ),
    ]
    return f"authorization: {{ users: {json.dumps(listed)} }}\n"
