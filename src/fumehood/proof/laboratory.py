"""Sandboxes of the policy, programs in them, and things of the host that no program may reach."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, Unpack

from fumehood.audit.log import AuditLog
from fumehood.backends.selection import select_backend
from fumehood.policy import Policy
from fumehood.proof.program import Program
from fumehood.proof.trial import DoesNotApplyError, NotTestedError
from fumehood.results import RunResult
from fumehood.sandbox.async_sandbox import AsyncSandbox
from fumehood.sandbox.request import RunOptions
from fumehood.snapshots import Snapshot
from fumehood.snapshots.store import VARIABLE as STORE_VARIABLE

# A program that takes longer than this has not shown anything.
_SHORTEST_SECONDS = 2.0


class Laboratory:
    """`policy` is the one that is proved. Its sandbox stays open for all trials that need no other."""

    def __init__(self, policy: Policy, box: AsyncSandbox, log: AuditLog, folder: Path) -> None:
        self.policy, self.box, self.log, self.folder = policy, box, log, folder
        self.mark = f"hood-prove-{secrets.token_hex(6)}"

    async def run(self, code: str | bytes | None = None, **options: Unpack[RunOptions]) -> RunResult:
        return await self.box.run(code, **options)

    async def attempts(self, code: str, **facts: object) -> dict[str, str]:
        """What a program of the trial came to, in the sandbox of the policy."""
        return await attempts(self.box, code, **facts)

    @asynccontextmanager
    async def sandbox(
        self, changes: Mapping[str, Any] | None = None, *, snapshot: Snapshot | None = None, keep_tmp: bool = False
    ) -> AsyncIterator[AsyncSandbox]:
        """Another one, with a copy of the policy that differs in `changes`."""
        policy = self.policy.override(changes) if changes else self.policy
        async with AsyncSandbox(policy, audit=self.log, snapshot=snapshot, keep_tmp=keep_tmp) as box:
            yield box

    @contextmanager
    def host_file(self) -> Iterator[Path]:
        """A file of the host's that every user of the host may read."""
        self.folder.chmod(0o755)
        path = self.folder / self.mark
        path.write_text("of the host\n", encoding="ascii")
        path.chmod(0o644)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    @contextmanager
    def host_process(self) -> Iterator[int]:
        """A process of the host's that waits; its number. The mark is on its command line, which everyone may read."""
        command = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()", self.mark]
        with subprocess.Popen(command, stdin=subprocess.PIPE, env={}) as process:
            try:
                yield process.pid
            finally:
                process.kill()


def require_native(lab: Laboratory) -> None:
    """For trials of a layer that only the native backend has."""
    backend = select_backend(lab.policy).name
    if backend != "native":
        raise DoesNotApplyError(f"the layers of {backend} are not the native backend's")


def require_time(box: AsyncSandbox) -> None:
    """A program that the clock ends has shown nothing, on a busy host sooner than elsewhere."""
    if box.policy.resources.timeout < _SHORTEST_SECONDS:
        raise NotTestedError(f"programs of the trials may need {_SHORTEST_SECONDS:.0f} s, and the policy gives less")


def remove(path: Path) -> None:
    """Where an attack got through to the host, its file does not stay."""
    try:
        path.unlink()
    except OSError:
        return


async def attempts(box: AsyncSandbox, code: str, **facts: object) -> dict[str, str]:
    require_time(box)
    program = Program(code, **facts)
    return program.tried(await box.run(program.source))


@asynccontextmanager
async def open_laboratory(policy: Policy) -> AsyncIterator[Laboratory]:
    """With an audit log and snapshots of its own, so that what trials do to them does not touch the user's."""
    with tempfile.TemporaryDirectory(prefix="hood-prove-") as name:
        folder = Path(name)
        own = {CANARY_VARIABLE: "of the host", STORE_VARIABLE: str(folder / "sandboxes")}
        with variables(own), closing(AuditLog.at(folder / "audit")) as log:
            async with AsyncSandbox(policy, audit=log) as box:
                yield Laboratory(policy, box, log, folder)


CANARY_VARIABLE = "HOOD_PROVE_CANARY"


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Of this process, until the block ends."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class HostListener:
    """A server on the host's loopback that keeps what each client sends first, and gives one answer to all."""

    def __init__(self, answer: bytes = b"of the host\n", *, tls: ssl.SSLContext | None = None) -> None:
        self.received: list[bytes] = []
        self._answer, self._tls = answer, tls
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]

    async def __aenter__(self) -> HostListener:
        self._server = await asyncio.start_server(self._serve, sock=self._socket, ssl=self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received.append(await reader.read(4096))
        writer.write(self._answer)
        writer.close()
