"""Ports of a sandbox: runs that share a loopback, and the host, which reaches a port with a token."""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
from collections.abc import Callable
from contextlib import closing

import pytest
import web_server
from contract.recorded import Recorded

from fumehood import BackgroundRun, DeniedError, ExposedPort, Policy, Sandbox, UsageError

MakePolicy = Callable[..., Policy]
PUBLISHED = {"publish": [web_server.PORT]}


def get(port: ExposedPort, path: str, **headers: str) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection(port.address.removeprefix("http://"), timeout=30)) as connection:
        connection.request("GET", path, headers={**port.headers, **headers})
        with connection.getresponse() as response:
            return response.status, response.read()


def websocket_echo(port: ExposedPort, word: bytes) -> bytes:
    """One message there and back."""
    host = port.address.removeprefix("http://")
    name, _, number = host.partition(":")
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [f"GET /echo HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket"]
    lines += [f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13"]
    lines += [f"{name}: {value}" for name, value in port.headers.items()]
    with socket.create_connection((name, int(number)), 30) as line, line.makefile("rb") as stream:
        line.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        assert stream.readline().startswith(b"HTTP/1.1 101 ")
        while stream.readline() != b"\r\n":
            pass
        line.sendall(bytes([0x81, 0x80 | len(word)]) + bytes(4) + word)
        _, length = stream.read(2)
        return stream.read(length)


def serving(box: Sandbox) -> tuple[BackgroundRun, ExposedPort]:
    run, port = box.start(web_server.SERVER), box.expose(web_server.PORT)
    port.wait_ready()
    return run, port


def test_the_host_and_other_runs_reach_a_port_while_it_is_open(make_policy: MakePolicy, recorded: Recorded) -> None:
    with Sandbox(make_policy(network=PUBLISHED), **recorded.options) as box:
        run, port = serving(box)
        status, page = get(port, "/seen?a=1&b")
        seen = json.loads(page)
        assert (status, seen["path"]) == (200, "/seen?a=1&b")
        assert port.headers["X-Fumehood-Token"] not in str(seen)
        assert websocket_echo(port, b"polo") == b"echo polo"
        client = "import urllib.request as r; print(len(r.urlopen('http://127.0.0.1:8000/seen').read()) > 0)"
        assert box.run(client).stdout == "True\n"
        run.kill()
        status, text = get(port, "/")
        assert (status, text) == (502, b"The sandbox did not answer: no program listens on this port.\n")
        port.close()
        with pytest.raises(ConnectionRefusedError):
            get(port, "/")
    records = [record for record in recorded.records() if record.kind.startswith("port.")]
    assert (records[0].kind, records[-1].kind) == ("port.exposed", "port.closed")
    asked = {(record.data["method"], record.data["path"], record.data["status"]) for record in records[1:-1]}
    assert asked == {("GET", "/seen", 200), ("GET", "/echo", 101), ("WEBSOCKET", "/echo", 101), ("GET", "/", 502)}


@pytest.mark.one_container
def test_a_port_that_the_policy_does_not_list_is_denied(box: Sandbox) -> None:
    with pytest.raises(DeniedError, match=r"add 8000 to network\.publish"):
        box.expose(8000)
    for wrong in (0, 65536, True, "8000"):
        with pytest.raises(UsageError, match="is not a port"):
            box.expose(wrong)  # type: ignore[arg-type]


def test_runs_that_share_a_loopback_share_the_way_out(make_policy: MakePolicy) -> None:
    """A run that begins beside others, one that outlives the first, and one that begins when all have ended."""
    rules = {"shared_loopback": True, "allow": [{"host": "allowed.example", "ports": [443]}]}
    look_up = "import socket\nprint(socket.gethostbyname('allowed.example')[:3])"
    wait = f"{look_up}\nimport sys\nsys.stdout.flush()\nsys.stdin.read()"
    with Sandbox(make_policy(network=rules)) as box:
        first = box.start(wait)
        assert _line_of(first) == b"127\n"
        second = box.start(wait)
        assert _line_of(second) == b"127\n"
        first.kill()
        assert box.run(look_up).stdout == "127\n"
        second.kill()
        assert box.run(look_up).stdout == "127\n"


def _line_of(run: BackgroundRun) -> bytes:
    """The text and the end of a line are two writes."""
    line = b""
    while not line.endswith(b"\n"):
        line += run.read(wait=30).stdout
    return line
