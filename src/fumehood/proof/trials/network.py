"""Trials of the network that a sandbox does not have."""

from __future__ import annotations

import asyncio
import socket

from fumehood.errors import FumehoodError
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


@attack("network.publish", "Use a published port without its token, and publish a port that the policy does not list.")
async def come_in_without_a_token(lab: Laboratory) -> str:
    ports = lab.policy.network.publish
    other = next(port for port in range(20_000, 30_000) if port not in ports)
    try:
        await lab.box.expose(other)
    except FumehoodError as error:
        refused = type(error).__name__
    else:
        raise BrokenError(f"port {other} was published")
    answer = await _ask(lab, with_token=False)
    if "hello" in answer or " 200 " in answer.splitlines()[0]:
        raise BrokenError(f"without a token the answer was {answer.splitlines()[0]}")
    return f"port {other}: {refused}; without the token: {answer.splitlines()[0]}"


@use("network.publish", "Use a published port with its token.")
async def come_in_with_a_token(lab: Laboratory) -> str:
    answer = await _ask(lab, with_token=True)
    if "hello" not in answer:
        raise BrokenError(f"the answer was {answer[:200]!r}")
    return answer.splitlines()[0]


async def _ask(lab: Laboratory, *, with_token: bool) -> str:
    port = lab.policy.network.publish[0]
    run = await lab.box.start(_SERVER.format(port=port))
    try:
        async with await lab.box.expose(port) as exposed:
            await exposed.wait_ready(10)
            host, _, number = exposed.address.removeprefix("http://").rpartition(":")
            headers = {"Host": f"{host}:{number}", "Connection": "close", **(exposed.headers if with_token else {})}
            reader, writer = await asyncio.open_connection("127.0.0.1", int(number))
            lines = [f"{name}: {value}" for name, value in headers.items()]
            writer.write("\r\n".join(["GET / HTTP/1.1", *lines, "", ""]).encode())
            answer = await reader.read(4096)
            writer.close()
    finally:
        await run.kill()
    return answer.decode("latin-1")


@attack("network.shared_loopback", "Reach a server of one sandbox from another one.")
async def reach_another_sandbox(lab: Laboratory) -> str:
    run = await lab.box.start(_SERVER.format(port=_PORT))
    try:
        await _wait_ready(run)
        async with lab.sandbox() as box:
            tried = await attempts(box, _CONNECT, port=_PORT)
    finally:
        await run.kill()
    return require_refusals(tried, ["connect"])


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
    come_in_without_a_token,
    come_in_with_a_token,
    reach_another_sandbox,
    reach_another_run,
)
