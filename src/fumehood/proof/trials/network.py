"""Trials of the network that a sandbox does not have."""

from __future__ import annotations

import socket

from fumehood.proof.laboratory import HostListener, Laboratory, attempts
from fumehood.proof.program import require_refusals, require_success
from fumehood.proof.trial import BrokenError, Trial, attack, use
from fumehood.sandbox.background import AsyncBackgroundRun


@attack("network", "Reach servers on the host's loopback, open raw sockets, look for devices and routes.")
async def reach_the_host(lab: Laboratory) -> str:
    abstract = f"\0{lab.mark}"
    async with HostListener() as listener:
        with socket.socket(socket.AF_UNIX) as local:
            local.bind(abstract)
            local.listen()
            tried = await lab.attempts(_REACH, port=listener.port, abstract=abstract)
        reached = listener.received
    devices, routes = tried.pop("devices", "not tried"), tried.pop("routes", "not tried")
    if reached:
        raise BrokenError(f"a server on the host's loopback was reached: {tried}")
    if devices != "got: ['lo']" or routes != "got: 0":
        raise BrokenError(f"devices {devices}, routes {routes}")
    return f"{require_refusals(tried, _WAYS)}; devices: lo alone; routes: none"


_WAYS = ("tcp to the host", "tcp6 to the host", "abstract socket of the host", "raw socket", "packet socket")
_REACH = """
def connect(family, address):
    with socket.socket(family) as one:
        one.settimeout(1)
        one.connect(address)
        one.sendall(b"hello")
        return one.recv(16)

def devices():
    with open("/proc/net/dev") as file:
        return sorted(line.split(":")[0].strip() for line in file.readlines()[2:])

def routes():
    with open("/proc/net/route") as file:
        return len([line for line in file.readlines()[1:] if line.strip()])

attempt("tcp to the host", lambda: connect(socket.AF_INET, ("127.0.0.1", port)))
attempt("tcp6 to the host", lambda: connect(socket.AF_INET6, ("::1", port)))
attempt("abstract socket of the host", lambda: connect(socket.AF_UNIX, abstract))
attempt("raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("packet socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3))
attempt("devices", devices)
attempt("routes", routes)
"""


@use("network", "Connect to a server of the same run on the loopback.")
async def use_the_loopback(lab: Laboratory) -> str:
    code = """
    def echo():
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
            with server.accept()[0] as other:
                other.sendall(b"hello")
                return one.recv(5)

    attempt("loopback", echo)
    """
    return require_success(await lab.attempts(code), ["loopback"])


_PORT = 18_081
_SERVER = """
import socket
with socket.create_server(("127.0.0.1", {port})) as server:
    print("ready", flush=True)
    while True:
        with server.accept()[0] as one:
            one.recv(4096)
            one.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\nConnection: close\\r\\n\\r\\nhello")
"""


@attack("network.shared_loopback", "Reach a server of one sandbox from another one.")
async def reach_another_sandbox(lab: Laboratory) -> str:
    run = await lab.box.start(_SERVER.format(port=_PORT))
    try:
        await _wait_ready(run)
        async with lab.sandbox() as box:
            # More often than runs are kept ready, any of which may have been made for the other sandbox.
            answers = [require_refusals(await attempts(box, _CONNECT, port=_PORT), ["connect"]) for _ in range(4)]
    finally:
        await run.kill()
    return f"{len(answers)} runs, {answers[0]}"


@use("network.shared_loopback", "Reach a server of one run from another run of the sandbox.")
async def reach_another_run(lab: Laboratory) -> str:
    run = await lab.box.start(_SERVER.format(port=_PORT))
    try:
        await _wait_ready(run)
        return require_success(await lab.attempts(_CONNECT, port=_PORT), ["connect"])
    finally:
        await run.kill()


_CONNECT = 'attempt("connect", lambda: socket.create_connection(("127.0.0.1", port), timeout=2).close())'


async def _wait_ready(run: AsyncBackgroundRun) -> None:
    output = await run.read(wait=10)
    if b"ready" not in output.stdout:
        raise BrokenError(f"the server inside did not start: {output.stderr!r}")


TRIALS: tuple[Trial, ...] = (
    reach_the_host,
    use_the_loopback,
    reach_another_sandbox,
    reach_another_run,
)
