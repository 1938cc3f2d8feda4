"""The parts of the MCP server that decide something by themselves."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from fumehood import Policy, Stderr, Stdout, UsageError
from fumehood.host.loopback import is_loopback
from fumehood.integrations.mcp import HttpEndpoint, ToolServerSettings
from fumehood.integrations.mcp.calls import ProgressReporter
from fumehood.integrations.mcp.clients import MOST_CALLS, MOST_WAITING, Client, open_clients
from fumehood.integrations.mcp.context import MOST_MESSAGE_BYTES
from fumehood.integrations.mcp.results import path_of, uri_of
from fumehood.integrations.mcp.stdio import TooLong, read_lines
from fumehood.integrations.mcp.tools import describe, instructions
from fumehood.tools.filters import Pipeline

pytestmark = pytest.mark.anyio
TOKEN = "correct-horse-battery-staple"
KEY = "ghp_" + "R2d2C3poBb8Lando1977EmpireStrikesBack9"[:36]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_the_loopback_is_known(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "203.0.113.1", "localhost.example.com", "127.0.0.1.nip.io", "x"])
def test_nothing_else_is_taken_for_the_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("token", ["", "short", "x" * 15, "white space is fine\n", "umlaut-ä-umlaut-ä-umlaut"])
def test_a_token_that_is_none_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match="at least 16 characters"):
        HttpEndpoint("127.0.0.1", 0, token)


def test_hosts_are_told_apart_by_name_and_port() -> None:
    assert HttpEndpoint("127.0.0.1", 0, TOKEN).names(80) == ["127.0.0.1:80", "localhost:80", "[::1]:80"]
    outside = HttpEndpoint("0.0.0.0", 0, TOKEN, hosts=("box.example.com", "proxy.example.com:443"))
    assert outside.names(80) == [
        "box.example.com:80",
        "proxy.example.com:443",
        "box.example.com",
        "proxy.example.com:443",
    ]
    with pytest.raises(UsageError, match="--allow-host"):
        HttpEndpoint("0.0.0.0", 0, TOKEN)


@pytest.mark.parametrize("path", ["out/x", "out/a b#c?d%41", "out/ä", "out/\udcff"])
def test_a_path_comes_back_from_its_address(path: str) -> None:
    assert uri_of(path).isascii()
    assert path_of(uri_of(path)) == path


@pytest.mark.parametrize("uri", ["file:///etc/passwd", "sandbox:///etc/passwd", "sandbox://workspace/x", "", "out/x"])
def test_an_address_of_something_else_is_no_path(uri: str) -> None:
    assert path_of(uri) is None


def test_a_model_is_told_what_the_place_is_like_and_nothing_of_the_host(tmp_path: Path) -> None:
    mount = {"source": str(tmp_path), "target": "/data", "mode": "ro"}
    policy = Policy(filesystem={"mounts": [mount], "outputs": ["out/**"]}, approvals=[{"tool": "shell"}])
    text = instructions(policy)
    assert str(tmp_path) not in text
    assert "Network: none." in text
    assert "out/**" in text
    assert "approved" in text
    assert all(not (tool.annotations and tool.annotations.open_world_hint) for tool in describe(policy))


async def test_a_client_makes_so_many_calls_at_once_and_no_more() -> None:
    most = under_way = 0
    go_on = anyio.Event()

    async def one(client: Client) -> None:
        nonlocal most, under_way
        async with client.turn():
            under_way += 1
            most = max(most, under_way)
            await go_on.wait()
            under_way -= 1

    async with anyio.create_task_group() as tasks:
        client = Client(ToolServerSettings(), tasks)
        for _ in range(MOST_CALLS + MOST_WAITING):
            tasks.start_soon(one, client)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(UsageError, match="calls are under way already"):
            async with client.turn():
                pass
        go_on.set()
    assert (most, under_way) == (MOST_CALLS, 0)


async def test_a_place_that_cannot_be_opened_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with open_clients(ToolServerSettings()) as clients, anyio.create_task_group() as tasks:
        client = Client(clients.settings, tasks)
        monkeypatch.setenv("FUMEHOOD_AUDIT", str(tmp_path / "file" / "below"))
        for _ in range(2):
            with pytest.raises(Exception, match="below"):
                await client.sandbox()
        monkeypatch.setenv("FUMEHOOD_AUDIT", str(tmp_path / "audit"))
        place = await client.sandbox()
        assert await client.sandbox() is place
        await client.abandon(place)
        assert await client.sandbox() is not place
        await client.close()
        with pytest.raises(UsageError, match="has disconnected"):
            await client.sandbox()


async def test_a_place_whose_opening_is_cancelled_leaves_the_next_one_alone() -> None:
    async with anyio.create_task_group() as tasks:
        client = Client(ToolServerSettings(), tasks)
        for delay in (0, 0.001, 0.01, 0.05):
            with anyio.move_on_after(delay):
                await client.sandbox()
        assert (await (await client.sandbox()).toolbox.call("python", {"code": "print(1)"})).ok
        await client.close()


async def told(live: ProgressReporter, wanted: int) -> list[str]:
    lines: list[str] = []
    enough = anyio.Event()

    async def tell(amount: float, line: str) -> None:
        lines.append(line)
        if len(lines) == wanted:
            enough.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(live.tell, tell)
        await enough.wait()
        tasks.cancel_scope.cancel()
    return lines


async def test_live_output_is_told_in_whole_lines_and_without_tokens() -> None:
    live = ProgressReporter(Pipeline(Policy()), shows_text=True)
    live.see(Stdout("eins \xe4".encode()[:-1]))
    live.see(Stderr(b"apart\n"))
    live.see(Stdout("\xe4".encode()[1:] + b"\n" + b"x" * 390 + b" \x1b[31m" + KEY.encode() + b"\n"))
    (text,) = await told(live, 1)
    assert text.splitlines()[:2] == ["apart", "eins ä"]
    assert "ghp_" not in text
    assert len(text.splitlines()[2]) == 400
    assert "\x1b" not in text


async def test_a_client_that_is_slow_gets_the_last_lines() -> None:
    live = ProgressReporter(Pipeline(Policy()), shows_text=True)
    for number in range(10_000):
        live.see(Stdout(b"%d\n" % number + b"x" * 100_000 * (number == 9_999)))
    (text,) = await told(live, 1)
    assert text.splitlines()[-1] == "9999"
    assert len(text) < 10_000


async def test_a_line_that_is_too_long_to_be_cleaned_is_not_shown() -> None:
    live = ProgressReporter(Pipeline(Policy()), shows_text=True)
    for _ in range(100):
        live.see(Stdout(b"x" * 1000))
    live.see(Stdout(f"{KEY}\nend\n".encode()))
    assert await told(live, 1) == ["[a long line]\nend"]


async def test_lines_that_are_too_long_are_dropped_as_they_come() -> None:
    read, write = os.pipe()
    data = b"one\n" + b"x" * (MOST_MESSAGE_BYTES + 1) + b"\ntwo\nrest"

    def feed() -> None:
        with os.fdopen(write, "wb") as stream:
            stream.write(data)

    lines: list[bytes | TooLong] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, feed)
        lines += [line async for line in read_lines(read)]
    os.close(read)
    assert (lines[0], type(lines[1]), lines[2:]) == (b"one", TooLong, [b"two"])


async def test_a_regular_file_can_be_standard_input(tmp_path: Path) -> None:
    (tmp_path / "messages").write_bytes(b"one\ntwo\n")
    with open(tmp_path / "messages", "rb") as stream:  # noqa: ASYNC230
        assert [line async for line in read_lines(stream.fileno())] == [b"one", b"two"]
