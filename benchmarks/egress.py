"""The way out: what the gateway costs, against the bare loopback and against proxies that do the same."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import proxies
from benchmarks.servers import DOWNLOAD_MIB, SERVERS
from fumehood.cli.bench.measurement import Row, private_memory_mib
from fumehood.policy import Policy
from fumehood.sandbox.async_sandbox import AsyncSandbox

_CONNECTS, _REQUESTS, _IDLE, _ROUNDS = 300, 1500, 1000, 4
# Each prints one number. They run inside a sandbox and outside of it, unchanged.
_DOWNLOAD = f"""
import socket, time
with socket.create_connection(("127.0.0.1", PORT)) as line:
    buffer, count = bytearray(1 << 20), 0
    started = time.perf_counter()
    while count < {DOWNLOAD_MIB} << 20 and (got := line.recv_into(buffer)):
        count += got
print({DOWNLOAD_MIB} / (time.perf_counter() - started))
"""
_CONNECT = f"""
import socket, statistics, time
taken = []
for _ in range({_CONNECTS}):
    started = time.perf_counter()
    with socket.create_connection(("127.0.0.1", PORT)) as line:
        line.sendall(b"x")
        line.recv(1)
    taken.append(time.perf_counter() - started)
print(statistics.median(taken) * 1000)
"""
_REQUEST = f"""
import http.client, ssl, time
trust = ssl.create_default_context(cafile=TRUST)
line = http.client.HTTPSConnection("localhost", PROXY or PORT, context=trust)
if PROXY:
    line.set_tunnel("localhost", PORT)
def ask():
    line.request("GET", "/")
    assert line.getresponse().read() == b"ok"
ask()
started = time.perf_counter()
for _ in range({_REQUESTS}):
    ask()
print({_REQUESTS} / (time.perf_counter() - started))
"""
_HOLD = f"""
import socket, sys
lines = [socket.create_connection(("127.0.0.1", PORT)) for _ in range({_IDLE})]
for line in lines:
    line.sendall(b"x")
    line.recv(1)
print("held", flush=True)
sys.stdin.read()
"""


async def measure() -> AsyncIterator[Row]:
    with tempfile.TemporaryDirectory(prefix="hood-bench-") as name, _many_descriptors(), ExitStack() as stack:
        folder = Path(name)
        os.chmod(folder, 0o711)  # noqa: S103 - squid reads its configuration as another user
        ports = stack.enter_context(_servers(folder))
        stack.enter_context(_trusting(folder / "root.pem"))
        async with AsyncSandbox(_policy(ports)) as box:
            for name, code, port, unit, budget in (
                ("gateway: large download / loopback", _DOWNLOAD, ports["download"], "M/s", ">= 0.6x"),
                ("gateway: connect and one byte / loopback", _CONNECT, ports["echo"], "ms", "<= 2 ms more"),
            ):
                ours, theirs = await _both(box, code, max if unit == "M/s" else min, PORT=port)
                yield Row(name, ours, unit, theirs, budget)
            async for row in _intercepted(box, ports["tls"], folder):
                yield row
            yield await _idle(box, ports["echo"])


def _policy(ports: dict[str, int]) -> Policy:
    place = {"host": "localhost", "private": True}
    rules = [
        {**place, "ports": [ports["download"], ports["echo"]], "protocol": "tcp"},
        {**place, "ports": [ports["tls"]], "protocol": "tls", "methods": ["GET"], "paths": ["/**"]},
    ]
    return Policy(network={"allow": rules}, resources={"timeout": "5m", "open_files": 4096})


async def _both(
    box: AsyncSandbox, code: str, best: Callable[[Iterable[float]], float], **names: object
) -> tuple[float, float]:
    """In the sandbox and beside it, in turns, the best of each: what else the machine does makes it only worse."""
    taken = [(await _inside(box, code, **names), await _outside(code, **names)) for _ in range(_ROUNDS)]
    return best(inside for inside, _ in taken), best(outside for _, outside in taken)


async def _inside(box: AsyncSandbox, code: str, **names: object) -> float:
    result = await box.run(_named(code, names))
    if not result.ok:
        raise RuntimeError(f"the sandboxed program failed: {result.stderr} {result.detail} {result.denials}")
    return float(result.stdout)


async def _outside(code: str, **names: object) -> float:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _named(code, names), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    said, complaint = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"the program failed: {complaint.decode()[-500:]}")
    return float(said)


def _named(code: str, names: dict[str, object]) -> str:
    return "".join(f"{name} = {value!r}\n" for name, value in names.items()) + code


async def _intercepted(box: AsyncSandbox, port: int, folder: Path) -> AsyncIterator[Row]:
    """Requests that the gateway reads, one after the other on one connection."""
    trust = str(folder / "root.pem")
    for name, start in (
        ("mitmproxy, which reads them too", proxies.mitmproxy),
        ("squid, which does not", proxies.squid),
    ):
        with ExitStack() as stack:
            proxy = start(folder, stack)
            if proxy is None:
                yield Row(f"TLS requests / {name}", missing="not installed here")
                continue
            theirs = await _outside(_REQUEST, PORT=port, PROXY=proxy.port, TRUST=proxy.trust or trust)
            ours = await _inside(box, _REQUEST, PORT=port, PROXY=0, TRUST=None)
            yield Row(f"TLS requests / {name}", ours, "/s", theirs)
    bare = await _outside(_REQUEST, PORT=port, PROXY=0, TRUST=trust)
    yield Row("TLS requests / loopback", await _inside(box, _REQUEST, PORT=port, PROXY=0, TRUST=None), "/s", bare)


async def _idle(box: AsyncSandbox, port: int) -> Row:
    before = private_memory_mib(os.getpid())
    run = await box.start(_named(_HOLD, {"PORT": port}))
    async for _ in run.stream():
        break
    used = private_memory_mib(os.getpid()) - before
    await run.close_stdin()
    await run.wait()
    return Row(f"gateway: memory of {_IDLE} idle connections", used, "M")


@contextmanager
def _servers(folder: Path) -> Iterator[dict[str, int]]:
    """In a process of their own, so that they share nothing with the gateway but the machine."""
    from fumehood.egress.certificates import CertificateAuthority

    authority = CertificateAuthority()
    (folder / "root.pem").write_bytes(authority.pem)
    (folder / "server.pem").write_bytes(authority.identity("localhost"))
    command = [sys.executable, "-c", SERVERS, str(folder / "server.pem")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.kill()


@contextmanager
def _trusting(roots: Path) -> Iterator[None]:
    """The gateway checks servers as any program here would: by the roots that this names."""
    before = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = str(roots)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SSL_CERT_FILE"]
        else:
            os.environ["SSL_CERT_FILE"] = before


@contextmanager
def _many_descriptors() -> Iterator[None]:
    """A sandbox may have an eighth of them as connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
