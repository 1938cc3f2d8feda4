"""Clients of E2B's protocol that want what is not theirs, or more of the server than they should have."""

from __future__ import annotations

import gzip
import json
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from e2b_code_interpreter import Sandbox
from live.e2b_server import E2bServer, serving
from live.traces import wait_until

FILESYSTEM = ["Stat", "ListDir", "MakeDir", "Move", "Remove"]
FILESYSTEM += ["WatchDir", "CreateWatcher", "GetWatcherEvents", "RemoveWatcher"]
PROCESS = ["Start", "Connect", "List", "Update", "SendInput", "StreamInput", "CloseStdin", "SendSignal"]
PLANE = {
    "GET": ["/health", "/files?path=x", "/contexts"],
    "POST": [
        "/files?path=x",
        "/execute",
        "/contexts",
        "/contexts/x/restart",
        *(f"/filesystem.Filesystem/{name}" for name in FILESYSTEM),
        *(f"/process.Process/{name}" for name in PROCESS),
    ],
    "DELETE": ["/contexts/x"],
}
CONTROL = {
    "GET": ["", "/metrics"],
    "DELETE": [""],
    "POST": ["/timeout", "/refreshes", "/connect"],
    "PUT": ["/network"],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2bServer]:
    with serving(tmp_path_factory.mktemp("e2b")) as opened, pytest.MonkeyPatch.context() as patch:
        for name, value in opened.environment.items():
            patch.setenv(name, value)
        yield opened


@pytest.fixture(scope="module")
def box(server: E2bServer) -> Iterator[Sandbox]:
    with Sandbox.create(timeout=300) as opened:
        yield opened


def headers(box: Sandbox, **others: str) -> dict[str, str]:
    return {
        "E2b-Sandbox-Id": box.sandbox_id,
        "E2b-Sandbox-Port": "49983",
        "X-Access-Token": str(box.traffic_access_token),
        **others,
    }


def call(server: E2bServer, method: str, path: str, headers: dict[str, str], body: bytes = b"{}") -> tuple[int, bytes]:
    content = None if method == "GET" else body
    answer = httpx.request(method, f"{server.url}{path}", headers=headers, content=content, timeout=60)
    return answer.status_code, answer.content


def test_a_wrong_token_a_foreign_one_and_an_unknown_sandbox_look_the_same(server: E2bServer, box: Sandbox) -> None:
    with Sandbox.create(timeout=60, api_key=server.foreign_key) as foreign:
        strangers = [
            {**headers(box), "X-Access-Token": str(foreign.traffic_access_token)},
            {**headers(box), "X-Access-Token": ""},
            {**headers(foreign), "X-Access-Token": str(box.traffic_access_token)},
            {**headers(box), "E2b-Sandbox-Id": "sbx_00000000000000000000"},
            {**headers(box), "E2b-Sandbox-Port": "8000", "X-Access-Token": "guess"},
        ]
        for method, paths in PLANE.items():
            for path in paths:
                answers = {call(server, method, path, stranger) for stranger in strangers}
                assert len(answers) == 1, (method, path, answers)
                assert next(iter(answers))[0] == 502


def test_control_calls_do_not_tell_a_foreign_sandbox_from_none(server: E2bServer, box: Sandbox) -> None:
    key, unknown = {"X-API-KEY": server.foreign_key}, "sbx_00000000000000000000"
    body = json.dumps({"timeout": 60}).encode()
    for method, paths in CONTROL.items():
        for path in paths:
            foreign = call(server, method, f"/sandboxes/{box.sandbox_id}{path}", key, body)
            assert foreign == call(server, method, f"/sandboxes/{unknown}{path}", key, body)
            assert foreign[0] == 404
    assert Sandbox.list(api_key=server.foreign_key).next_items() == []
    assert call(server, "POST", "/sandboxes", headers(box))[0] == 401, "a sandbox's token opens no others"
    assert box.is_running()


@pytest.mark.parametrize("path", ["../../etc/shadow", "/proc/1/environ", "/proc/self/root/etc/shadow", "/etc/passwd"])
def test_paths_lead_nowhere_outside(box: Sandbox, path: str) -> None:
    with pytest.raises(Exception, match=r"not in the workspace|made anew for each run"):
        box.files.read(path)
    box.commands.run("ln -sfn / way-out")
    with pytest.raises(Exception, match="leads out of the workspace"):
        box.files.read(f"way-out/{path.lstrip('./')}")
    with pytest.raises(Exception, match=r"read-only|permissions|leads out|403"):
        box.files.write("/usr/bin/env", "x")


def test_frames_that_lie_are_answered_and_cost_nothing(server: E2bServer, box: Sandbox) -> None:
    stream = headers(box, **{"Content-Type": "application/connect+json"})
    for body, code in {
        struct.pack(">BI", 0, 2**31) + b"{}": "resource_exhausted",
        struct.pack(">BI", 0, 1000) + b"{}": "invalid_argument",
        struct.pack(">BI", 1, 2) + b"{}": "unimplemented",
        struct.pack(">BI", 0, 2) + b"[]": "invalid_argument",
        b"": "invalid_argument",
    }.items():
        status, answer = call(server, "POST", "/process.Process/Start", stream, body)
        assert (status, json.loads(answer[5:])["error"]["code"]) == (200, code)
    kinds: dict[str, Any] = {"cmd": 1, "args": "x", "envs": [], "cwd": {}, "pty": 7}
    for name, value in kinds.items():
        message = json.dumps({"process": {"cmd": "/bin/true", name: value}, "pty": kinds["pty"]}).encode()
        _, answer = call(
            server, "POST", "/process.Process/Start", stream, struct.pack(">BI", 0, len(message)) + message
        )
        assert json.loads(answer[5:])["error"]["code"] == "invalid_argument"


def test_a_gzip_bomb_ends_at_the_size_of_the_workspace(server: E2bServer) -> None:
    bomb = gzip.compress(bytes(300_000_000), 9)
    with Sandbox.create("small", timeout=60) as box:
        before = server.peak_memory_bytes
        sent = headers(box, **{"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"})
        status, answer = call(server, "POST", "/files?path=bomb", sent, bomb)
        assert status == 507
        assert b"1M unpacked" in answer or b"full" in answer
        assert server.peak_memory_bytes - before < 2**25
        assert not box.files.exists("bomb")


def test_a_reader_that_does_not_read_holds_back_its_process_and_nothing_else(server: E2bServer, box: Sandbox) -> None:
    before = server.peak_memory_bytes
    message = json.dumps(
        {"process": {"cmd": "/usr/bin/head", "args": ["-c", "400000000", "/dev/zero"]}, "tag": "slow", "stdin": False}
    ).encode()
    body = struct.pack(">BI", 0, len(message)) + message
    lines = ["POST /process.Process/Start HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers(box).items()]
    with socket.create_connection(("127.0.0.1", server.port)) as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        assert reader.recv(16).startswith(b"HTTP/1.1 200")
        for _ in range(20):
            assert box.commands.run("sleep 0.05; echo others").stdout == "others\n"
        assert [each.tag for each in box.commands.list()] == ["slow"]
        assert server.peak_memory_bytes - before < 2**26


def test_forms_that_are_none_are_refused(server: E2bServer, box: Sandbox) -> None:
    for kind, body in {
        "multipart/form-data": b"x",
        "multipart/form-data; boundary=b": b"--b\r\nContent-Disposition: form-data; name=file",
        "multipart/form-data; boundary=c": b"--c\r\n\r\nx\r\n--c--",
    }.items():
        status, _ = call(server, "POST", "/files", headers(box, **{"Content-Type": kind}), body)
        assert status in (200, 400), "an empty form has no files, and stores none"
    many = b"".join(
        b'--d\r\nContent-Disposition: form-data; name="file"; filename="%d"\r\n\r\n\r\n' % n for n in range(1001)
    )
    sent = headers(box, **{"Content-Type": "multipart/form-data; boundary=d"})
    assert call(server, "POST", "/files", sent, many + b"--d--\r\n")[0] == 400


def test_a_form_with_many_files_takes_no_memory_and_no_descriptors(server: E2bServer, box: Sandbox) -> None:
    before, begin = (
        server.peak_memory_bytes,
        b'--d\r\nContent-Disposition: form-data; name="file"; filename="%d"\r\n\r\n',
    )
    most_open = 0

    def body() -> Iterator[bytes]:
        nonlocal most_open
        for number in range(120):
            yield begin % number + bytes(1_000_000 + number % 2 * 100_000) + b"\r\n"
            most_open = max(most_open, len(os.listdir(f"/proc/{server.process}/fd")))
        yield b"--d--\r\n"

    sent = headers(box, **{"Content-Type": "multipart/form-data; boundary=d"})
    answer = httpx.post(f"{server.url}/files", headers=sent, content=body(), timeout=60)
    assert answer.status_code == 200, answer.text
    assert [each["name"] for each in answer.json()] == [str(number) for number in range(120)]
    assert len(box.files.read("119", format="bytes")) == 1_100_000
    assert server.peak_memory_bytes - before < 2**25
    assert most_open < 60


_ECHO = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Echo(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(self.headers).lower().encode())
HTTPServer(("", 8000), Echo).serve_forever()
"""


def test_a_program_behind_a_port_sees_no_key_and_no_token(server: E2bServer) -> None:
    with Sandbox.create("web", timeout=60) as box:
        box.files.write("echo.py", _ECHO)
        box.commands.run("python3 echo.py", background=True, timeout=0)
        sent = {**headers(box), "E2b-Sandbox-Port": "8000", "X-API-Key": server.key, "X-Own": "kept"}
        wait_until(lambda: call(server, "GET", "/", sent)[0] == 200, 20.0, "the server inside listens")
        seen = call(server, "GET", "/", sent)[1].decode()
        assert "x-own: kept" in seen
        assert server.key.lower() not in seen
        assert str(box.traffic_access_token).lower() not in seen
