"""Published ports: getting in without the token, taking it over from inside, and reaching another sandbox's loopback.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| another user, or a page, that has no token | the token, compared in constant time | `port-token` |
| a name of the attacker's that leads to 127.0.0.1 | the Host header must be an address of the port | `port-host` |
| a page of another origin in a browser that has the cookie | the Origin and Sec-Fetch-Site headers | `port-origin` |
| a server inside that reads the token out of requests | everything that holds it is taken out | `port-token-stripped` |
| a server inside that sets the cookie of the token | such cookies are dropped | `port-cookies-kept-apart` |
| a run that wants the loopback of another sandbox | a network namespace for each | `loopbacks-apart` |
| any user of the machine, with idle connections to it | those without a token make room | `ports-make-room` |
| a request in a request; a server inside that breaks the protocol | the parser of the gateway | `port-framing-strict` |

The host's part is the same on every backend, so most of it is attacked on one.
"""

from __future__ import annotations

import http.client
import json
import select
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, closing

import anyio
import anyio.to_thread
import pytest
import web_server

from escape.conftest import MakeSandbox
from fumehood import AsyncExposedPort, AsyncSandbox, Policy
from fumehood.egress import shared_gateway

pytestmark = pytest.mark.anyio
POLICY = Policy(backend="native", network={"publish": [web_server.PORT]})
OUTWARDS = Policy(
    backend="native",
    network={"allow": [{"host": "127.0.0.1", "ports": [9999], "private": True, "protocol": "tcp"}]},
)
ODD = ("/huge-header", "/no-http", "/two-lengths", "/nothing", "/half-a-head", "/unasked-switch")


@pytest.fixture
async def port() -> AsyncIterator[AsyncExposedPort]:
    async with AsyncSandbox(POLICY) as box:
        await box.start(web_server.SERVER)
        port = await box.expose(web_server.PORT)
        await port.wait_ready()
        yield port


async def ask(port: AsyncExposedPort, path: str, headers: dict[str, str], method: str = "GET") -> tuple[int, str, str]:
    """Status, headers and body."""

    def work() -> tuple[int, str, str]:
        with closing(http.client.HTTPConnection(port.address.removeprefix("http://"), timeout=15)) as connection:
            connection.request(method, path, headers=headers)
            with connection.getresponse() as response:
                return response.status, str(response.headers), response.read().decode()

    return await anyio.to_thread.run_sync(work)


def cookie(port: AsyncExposedPort) -> dict[str, str]:
    """What a browser that was given the token sends."""
    token = port.headers["X-Fumehood-Token"]
    return {"Host": port.url.split("/")[2], "Cookie": f"fumehood-token={token}"}


@pytest.mark.parametrize("token", [None, "", "x", "é"])
async def test_without_the_token_there_is_nothing(port: AsyncExposedPort, token: str | None) -> None:
    headers = {} if token is None else {"X-Fumehood-Token": token}
    status, told, body = await ask(port, "/seen", headers)
    assert status == 403
    assert "8000" not in told + body
    assert "seen" not in body


async def test_a_name_that_leads_here_is_not_ours(port: AsyncExposedPort) -> None:
    headers = {**port.headers, "Host": f"attacker.example:{port.address.rpartition(':')[2]}"}
    assert (await ask(port, "/seen", headers))[0] == 403


@pytest.mark.parametrize(
    "sent",
    [
        {"Origin": "http://attacker.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://attacker.example", "Connection": "Upgrade", "Upgrade": "websocket"},
    ],
)
async def test_a_page_of_another_origin_has_no_use_of_the_cookie(port: AsyncExposedPort, sent: dict[str, str]) -> None:
    assert (await ask(port, "/seen", cookie(port)))[0] == 200
    assert (await ask(port, "/seen", {**cookie(port), **sent}))[0] == 403


async def test_the_server_inside_does_not_see_the_token(port: AsyncExposedPort) -> None:
    token = port.headers["X-Fumehood-Token"]
    sent = {**cookie(port), **port.headers, "Referer": port.url, "X-Else": token}
    _, _, body = await ask(port, "/seen", sent)
    assert json.loads(body)["path"] == "/seen"
    assert token not in body


async def test_the_server_inside_cannot_set_the_cookie_of_the_token(port: AsyncExposedPort) -> None:
    _, headers, _ = await ask(port, "/cookies", cookie(port))
    assert "app=1" in headers
    assert "fumehood-token" not in headers.lower()


async def test_a_request_that_can_be_read_in_two_ways_does_not_get_in(port: AsyncExposedPort) -> None:
    host = port.address.removeprefix("http://")
    token = port.headers["X-Fumehood-Token"]
    head = f"POST / HTTP/1.1\r\nHost: {host}\r\nX-Fumehood-Token: {token}\r\nContent-Length: 2\r\n"
    async with await anyio.connect_tcp("127.0.0.1", int(host.partition(":")[2])) as line:
        await line.send(f"{head}Content-Length: 0\r\n\r\nab".encode())
        assert (await line.receive()).split()[1] == b"400"


async def test_a_server_that_breaks_the_protocol_breaks_nothing_else(port: AsyncExposedPort) -> None:
    for path in ODD:
        status, _, _ = await ask(port, path, dict(port.headers))
        assert (path, status) == (path, 502)
    assert (await ask(port, "/seen", dict(port.headers)))[0] == 200


async def test_a_loopback_is_of_one_sandbox_alone(make_sandbox: MakeSandbox) -> None:
    """Two sandboxes of one policy, whose runs are in one cell."""
    serve = "import socket\nline = socket.create_server(('127.0.0.1', 8000))\nprint('up', flush=True)\nline.accept()"
    knock = "import socket\ntry: socket.create_connection(('127.0.0.1', 8000), 5)\nexcept OSError as e: print(e.errno)"
    network = {"shared_loopback": True}
    async with make_sandbox(network=network) as one, make_sandbox(network=network) as other:
        run = await one.start(serve)
        await run.read(wait=20)
        assert (await other.run(knock)).stdout == "111\n"
        assert (await one.run(knock)).stdout == ""


async def test_clients_without_a_token_take_the_network_from_no_sandbox(port: AsyncExposedPort) -> None:
    everyone = shared_gateway().connections
    most, everyone.most = everyone.most, 20
    try:
        with ExitStack() as stack:
            address = "127.0.0.1", int(port.address.rpartition(":")[2])
            lines = [stack.enter_context(socket.create_connection(address)) for _ in range(40)]
            await anyio.to_thread.run_sync(wait_until_some_are_closed, lines, 20)
            async with AsyncSandbox(OUTWARDS) as other:
                result = await other.run("import socket\nsocket.create_connection(('127.0.0.1', 9999)).recv(1)")
            assert "as many connections" not in str(result.denials)
    finally:
        everyone.most = most


def wait_until_some_are_closed(lines: list[socket.socket], count: int) -> None:
    while len(select.select(lines, [], [])[0]) < count:
        pass  # the rest follows in a moment
