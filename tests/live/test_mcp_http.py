"""`hood mcp --http`: several clients at once, each with a sandbox of its own, and who gets in at all."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from live import browser
from live.cli_host import SECONDS, hood
from live.mcp_host import Server, call, environment, listening, text, text_of
from live.test_mcp import CLIENT_CODE, HELLO, POLICY, Person, cancel_a_call, use_every_tool
from live.traces import wait_until
from mcp.shared.exceptions import MCPError
from requirements import require

pytestmark = pytest.mark.anyio
JSON = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    policy = tmp_path_factory.mktemp("mcp") / "served.yaml"
    policy.write_text(POLICY)
    with listening("--policy", policy) as opened:
        yield opened


def post(server: Server, message: Any = HELLO, **headers: str) -> httpx2.Response:
    content = message if isinstance(message, bytes) else None
    body = None if content is not None else message
    return httpx2.post(server.address, json=body, content=content, headers={**JSON, **server.headers, **headers})


async def test_a_client_uses_every_tool(server: Server) -> None:
    async with server.connected() as client:  # which first tries a revision that has no sessions, and then another
        assert client.protocol_version == "2025-11-25"
        assert {tool.name for tool in (await client.list_tools()).tools} == await use_every_tool(client)
        assert len(server.open_sandboxes()) == 1
    wait_until(lambda: not server.open_sandboxes(), 20.0, "the sandbox is closed when its client leaves")


async def test_clients_at_once_see_nothing_of_each_other(server: Server) -> None:
    async with server.connected() as one, server.connected() as other:
        await call(one, "start_session", session="s")
        async with anyio.create_task_group() as tasks:
            for client, name in ((one, "one"), (other, "other")):
                tasks.start_soon(lambda client=client, name=name: call(client, "write_file", path="mine", content=name))
        assert await text(one, "read_file", path="mine") == "one"
        assert await text(other, "read_file", path="mine") == "other"
        await call(one, "python", code="x = 1; open('only', 'w')", session="s")
        assert "there is no session 's'" in await text(other, "python", code="x", session="s")
        assert "only" not in await text(other, "list_files")
        made = await call(one, "python", code="import os; os.mkdir('out'); open('out/x', 'w').write('mine')")
        uri = made.structured_content["files"][0]["uri"]
        assert [item.uri for item in (await one.list_resources()).resources] == [uri]
        assert (await other.list_resources()).resources == []
        with pytest.raises(MCPError):
            await other.read_resource(uri)


async def test_a_long_call_of_one_client_holds_nobody_up(server: Server) -> None:
    async with server.connected() as one, server.connected() as other, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: call(one, "python", code="import threading; threading.Event().wait()"))
        assert await text(other, "shell", command="seq 1") == "Success.\nstdout:\n1"
        tasks.cancel_scope.cancel()


async def test_cancelling_a_call_ends_the_run_for_real(server: Server) -> None:
    async with server.connected() as client:
        await cancel_a_call(client)


async def test_a_revision_without_sessions_is_refused_with_those_that_have_them(server: Server) -> None:
    async with server.connected(mode="2026-07-28") as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("python", {"code": "print(1)"})
    assert refused.value.code == -32022
    assert "2025-11-25" in refused.value.error.data["supported"]


async def test_a_person_is_asked_over_http_too(tmp_path: Path) -> None:
    (tmp_path / "careful.yaml").write_text("version: 1\napprovals: [{tool: '*', when: first_use}]\n")
    person = Person("accept", decision="approve")
    with listening("--policy", tmp_path / "careful.yaml") as server:
        async with server.connected(elicitation_callback=person) as client:
            assert await text(client, "python", code="print(1)") == "Success.\nstdout:\n1"
            assert await text(client, "python", code="print(2)") == "Success.\nstdout:\n2"
        assert len(person.read) == 1  # the first use in this client's task ...
        async with server.connected(elicitation_callback=person) as client:
            await call(client, "python", code="print(3)")
        assert len(person.read) == 2  # ... and in another one's


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": ""}, 401),
        ({"authorization": "Bearer"}, 401),
        ({"authorization": "Bearer wrong-wrong-wrong-wrong"}, 401),
        ({"authorization": "Basic dXNlcjpwYXNz"}, 401),
        ({"host": "evil.example.com"}, 421),
        ({"host": "127.0.0.1:1"}, 421),
        ({"host": "127.0.0.1.evil.example.com"}, 421),
        ({"origin": "https://evil.example.com"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1"}, 403),
        ({"content-type": "text/plain"}, 400),
        ({"accept": "text/html"}, 406),
        ({"mcp-session-id": "0123456789abcdef0123456789abcdef"}, 404),
    ],
)
def test_who_should_not_get_in_does_not(server: Server, headers: dict[str, str], status: int) -> None:
    assert post(server, **headers).status_code == status


@pytest.mark.parametrize("scheme", ["bearer ", "BEARER ", "Bearer  "])
def test_the_name_of_the_scheme_has_no_case(server: Server, scheme: str) -> None:
    assert post(server, authorization=f"{scheme}{server.token}").status_code == 200
    assert post(server, authorization=f"{scheme}{server.token.swapcase()}").status_code == 401


def test_two_tokens_are_none(server: Server) -> None:
    both = [("authorization", "Bearer x"), *server.headers.items(), *JSON.items()]
    assert httpx2.post(server.address, json=HELLO, headers=both).status_code == 401


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "OPTIONS"])
def test_without_the_token_no_method_says_anything(server: Server, method: str) -> None:
    for path in ("", "/../", "?x=1"):
        answer = httpx2.request(method, server.address + path)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"no JSON", 400),
        (b"", 400),
        (b"[" * 100_000, 400),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}', 400),  # by nobody who has said hello
        (b'"' + b"x" * (9 * 1024 * 1024) + b'"', 413),
    ],
)
def test_a_body_that_makes_no_sense_is_refused(server: Server, body: bytes, status: int) -> None:
    assert post(server, body).status_code == status
    assert post(server).status_code == 200


async def test_unknown_tools_and_wrong_arguments_are_clear(server: Server) -> None:
    async with server.connected() as client:
        with pytest.raises(MCPError, match="there is no tool 'rm'"):
            await client.call_tool("rm", {})
        wrong = await call(client, "python", code=5)
        assert (wrong.is_error, "code: Input should be a valid string" in text_of(wrong)) == (True, True)
        denied = await call(client, "shell", command="curl example.com")
        assert denied.structured_content["status"] == "denied"


async def test_there_is_room_for_so_many_clients_and_silent_ones_go(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("correct-horse-battery-staple\n")
    token.chmod(0o600)
    with listening("--clients", "1", "--idle", "2s", "--token-file", token, token=token.read_text().strip()) as server:
        async with server.connected() as client:
            await call(client, "python", code="print(1)")
            assert post(server).status_code == 503
        assert post(server).status_code == 200  # the first one has left; this one says nothing any more
        wait_until(lambda: post(server).status_code == 200, 20.0, "a silent client makes room")


HTTP_CLIENT = f"""
import anyio, httpx2, sys
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
async def main():
    headers = {{"authorization": "Bearer " + sys.argv[2]}}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        async with Client(streamable_http_client(sys.argv[1], http_client=http)) as client:
            async def up(*_): print('up', flush=True)
            await client.call_tool('python', {{'code': {CLIENT_CODE!r}}}, progress_callback=up)
anyio.run(main)
"""


@contextmanager
def busy_client(server: Server) -> Iterator[subprocess.Popen[bytes]]:
    """A client in a process of its own, with a call under way that does not end."""
    command = [sys.executable, "-W", "ignore", "-c", HTTP_CLIENT, server.address, server.token]
    environ = {**os.environ, **environment()}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environ, **pipes) as client:
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == b"up\n"
            yield client
        finally:
            client.kill()


def test_a_client_that_is_killed_leaves_nothing_when_its_time_is_over() -> None:
    with listening("--idle", "2s", "--timeout", "3s") as server:
        with busy_client(server):
            assert len(server.open_sandboxes()) == 1
        wait_until(lambda: not server.open_sandboxes(), 30.0, "its sandbox is closed")


def test_a_signal_ends_it_in_the_middle_of_a_run() -> None:
    """With a client that stays connected, and a stream that stays open; `listening` sees to the rest."""
    with listening("--timeout", "100s") as server, busy_client(server):
        server.process.terminate()
        assert server.process.wait(SECONDS) == 0


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("correct-horse-battery-staple\n")
    token.chmod(0o644)
    done = hood("mcp", "--http", ":0", "--token-file", token)
    assert (done.returncode, b"chmod 600" in done.stderr) == (2, True)


def test_a_port_that_is_taken_is_one_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = hood("mcp", "--http", f"127.0.0.1:{taken.getsockname()[1]}")
    assert done.returncode == 2
    assert b"cannot listen at 127.0.0.1:" in done.stderr


def test_named_origins_and_hosts_get_in(tmp_path: Path) -> None:
    with listening("--allow-origin", "https://tools.example.com", "--allow-host", "box.example.com") as server:
        assert post(server, origin="https://tools.example.com").status_code == 200
        assert post(server, origin="https://tools.example.com.evil.net").status_code == 403
        assert post(server, host="box.example.com").status_code == 200
        assert post(server, host=f"box.example.com:{server.port}").status_code == 200
        assert post(server, host="other.example.com").status_code == 421
        server.process.send_signal(2)
        assert server.process.wait(SECONDS) == 0


# Pages in a browser

PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}


def test_a_browser_that_asks_first_is_answered_for_a_named_origin_alone() -> None:
    ours = "https://tools.example.com"
    with listening("--allow-origin", ours) as server:
        asked = httpx2.options(server.address, headers={**PREFLIGHT, "origin": ours})
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, ours)
        assert "access-control-allow-credentials" not in asked.headers
        answered = post(server, origin=ours)
        assert (answered.headers["access-control-allow-origin"], answered.headers["vary"]) == (ours, "Origin")
        assert post(server, origin=ours, authorization="Bearer wrong").status_code == 401
        for headers in ({"origin": "https://evil.example.com"}, {"origin": f"{ours}.evil.net"}, {"origin": "null"}, {}):
            refused = httpx2.options(server.address, headers={**PREFLIGHT, **headers})
            assert refused.status_code == 401
            assert not [name for name in refused.headers if name.startswith("access-control")]
        assert httpx2.options(server.address, headers={"origin": ours}).status_code == 401  # no preflight, no token
        assert post(server, origin="https://evil.example.com").status_code == 403


@pytest.mark.parametrize("origin", ["*", "null", "https://x.example.com/", "https://X.example.com", "http://x:80", "x"])
def test_an_origin_that_no_browser_sends_is_refused_at_once(origin: str) -> None:
    done = hood("mcp", "--http", ":0", "--allow-origin", origin)
    assert (done.returncode, b"is not one that a browser sends" in done.stderr) == (2, True)


def test_a_page_of_a_named_origin_uses_the_server_in_a_browser_and_no_other_page_does(tmp_path: Path) -> None:
    require(browser.missing() is None, browser.missing() or "")
    with browser.site() as site, listening("--allow-origin", f"http://127.0.0.1:{site.port}") as server:
        use = browser.USE_SERVER.replace("ADDRESS", server.address).replace("TOKEN", server.token)
        assert site.outcome(f"http://127.0.0.1:{site.port}", use, tmp_path / "named") == "42 200"
        assert site.outcome(f"http://localhost:{site.port}", use, tmp_path / "other") == "TypeError: Failed to fetch"
