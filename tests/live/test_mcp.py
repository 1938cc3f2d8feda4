"""`hood mcp` over standard input and output: every tool, resources, approvals, cancelling, and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from live.cli_host import HOOD, SECONDS, assert_nothing_is_left, hood, open_hood, open_terminal
from live.mcp_host import ERAS, call, connected, environment, links, pictures, text, text_of
from live.traces import descendants, is_alive, wait_until
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp_types import BlobResourceContents, ElicitRequestParams, ElicitResult, TextResourceContents

from fumehood.audit import AuditLog, Query

pytestmark = pytest.mark.anyio
POLICY = """
version: 1
name: served
filesystem: {outputs: ["out/**"]}
commands: {allow: [ls, seq, "cat *", "sleep *"]}
resources: {timeout: 20s}
"""
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PNG = f"import base64; open('out/dot.png','wb').write(base64.b64decode('{DOT}'))"
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    (tmp_path / "served.yaml").write_text(POLICY)
    return tmp_path / "served.yaml"


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_uses_every_tool(policy: Path, era: str) -> None:
    async with connected("--policy", policy, mode=era) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        used = await use_every_tool(client)
        assert used == set(tools)
    assert tools["python"].input_schema["required"] == ["code"]
    assert tools["read_file"].annotations is not None
    assert tools["read_file"].annotations.read_only_hint
    assert tools["shell"].annotations is not None
    assert (tools["shell"].annotations.destructive_hint, tools["shell"].annotations.open_world_hint) == (True, False)
    assert tools["shell"].output_schema is not None


async def use_every_tool(client: Client) -> set[str]:
    """The names of those that did what they should."""
    assert await text(client, "python", code="print(6 * 7)") == "Success.\nstdout:\n42"
    assert await text(client, "shell", command="seq 2") == "Success.\nstdout:\n1\n2"
    assert "Wrote" in await text(client, "write_file", path="notes/a.txt", content="one\ntwo\n")
    assert "Replaced 1 time" in await text(client, "edit_file", path="notes/a.txt", old="two", new="2")
    assert await text(client, "read_file", path="notes/a.txt") == "one\n2\n"
    assert "a.txt" in await text(client, "list_files", path="notes")
    assert "Session s is open" in await text(client, "start_session", session="s")
    await call(client, "python", code="x = 40", session="s")
    assert "value: 42" in await text(client, "python", code="x + 2", session="s")
    assert "NameError" in await text(client, "python", code="x")
    assert "begins anew" in await text(client, "reset_session", session="s")
    assert "NameError" in await text(client, "python", code="x", session="s")
    assert "is closed" in await text(client, "close_session", session="s")
    assert "there is no session 's'" in await text(client, "python", code="1", session="s")
    await use_a_process(client)
    assert "noted from now on" in await text(client, "changed_files")
    await text(client, "write_file", path="notes/later.txt", content="new")
    assert "notes/later.txt" in await text(client, "changed_files", wait=30)
    return {
        *("python", "shell", "write_file", "edit_file", "read_file", "list_files", "changed_files"),
        *("start_session", "reset_session", "close_session"),
        *("start_process", "read_process", "write_process", "stop_process"),
    }


async def use_a_process(client: Client) -> None:
    started = await text(client, "start_process", command="cat notes/a.txt -", wait=30)
    assert started == "Process 1 is running.\nstdout:\none\n2"
    answer = await text(client, "write_process", process=1, text="three\n", wait=30)
    assert answer == "Process 1 is running.\nstdout:\nthree"
    assert await text(client, "read_process", process=1, wait=0) == "Process 1 is running.\nThere is no new output."
    assert "Process 1 has ended." in await text(client, "stop_process", process=1)


async def test_failures_and_denials_are_told_to_the_model(policy: Path) -> None:
    async with connected("--policy", policy, "--timeout", "2s") as client:
        failed = await call(client, "python", code="import sys; sys.exit(3)")
        assert (failed.is_error, failed.structured_content["run"]["exit_code"]) == (True, 3)
        late = await call(client, "python", code="while True: pass")
        assert (late.structured_content["status"], late.structured_content["run"]["cause"]) == ("error", "wall_time")
        denied = await call(client, "shell", command="ls; rm -rf x")
        assert (denied.is_error, denied.structured_content["status"]) == (True, "denied")
        assert text_of(denied).startswith("Denied by the policy, nothing was started: rm -rf x: rm is not allowed")
        assert denied.structured_content["denials"][0].startswith("rm -rf x: rm is not allowed")
        shut = await text(client, "python", code="import socket; socket.create_connection(('203.0.113.10', 443))")
        assert "Network is unreachable" in shut
        assert "cannot be read" in await text(client, "read_file", path="/etc/shadow")
        wrong = await call(client, "python", cod="print(1)")
        assert (wrong.is_error, wrong.structured_content["status"]) == (True, "invalid")
        assert "code: Field required" in text_of(wrong)


@pytest.mark.parametrize("era", ERAS)
async def test_artifacts_are_resources_and_pictures_are_pictures(policy: Path, era: str) -> None:
    async with connected("--policy", policy, mode=era) as client:
        assert (await client.list_resources()).resources == []
        made = await call(
            client, "python", code=f"import os; os.mkdir('out'); {PNG}; open('out/a b.csv','w').write('1')"
        )
        assert links(made) == ["sandbox:///workspace/out/a%20b.csv", "sandbox:///workspace/out/dot.png"]
        assert pictures(made) == ["image/png"]
        assert [item["path"] for item in made.structured_content["files"]] == ["out/a b.csv", "out/dot.png"]
        written = await call(client, "write_file", path="/workspace/out/./mine.txt", content="mine")
        assert links(written) == ["sandbox:///workspace/out/mine.txt"]
        assert written.structured_content["files"][0]["bytes"] == 4
        assert links(await call(client, "edit_file", path="out/mine.txt", old="mine", new="ours")) == links(written)
        kept = await call(client, "write_file", path="kept.txt", content="mine")
        assert (links(kept), "files" in kept.structured_content) == ([], False)
        await call(client, "python", code="open('secret.txt', 'w').write('x'); open('out/fake.png', 'w').write('no')")
        listed = {item.name: item for item in (await client.list_resources(cache_mode="bypass")).resources}
        assert sorted(listed) == ["out/a b.csv", "out/dot.png", "out/fake.png", "out/mine.txt"]
        assert (listed["out/dot.png"].mime_type, listed["out/a b.csv"].size) == ("image/png", 1)
        (content,) = (await client.read_resource(listed["out/a b.csv"].uri)).contents
        assert isinstance(content, TextResourceContents)
        assert content.text == "1"
        (content,) = (await client.read_resource(listed["out/dot.png"].uri)).contents
        assert isinstance(content, BlobResourceContents)
        for uri in (
            "sandbox:///workspace/secret.txt",
            "sandbox:///workspace/out/gone",
            "sandbox:///workspace/../etc/passwd",
            "file:///etc/passwd",
        ):
            with pytest.raises(MCPError):
                await client.read_resource(uri)


async def test_what_only_looks_like_a_picture_or_has_no_proper_name_stays_a_file(policy: Path) -> None:
    names = r"open(b'out/\xff.txt', 'w'); open('out/\x1b', 'w')"
    code = f"import os; os.mkdir('out'); open('out/x.png', 'w').write('no'); {names}"
    async with connected("--policy", policy) as client:
        made = await call(client, "python", code=code)
        assert (made.is_error, pictures(made), links(made)) == (False, [], ["sandbox:///workspace/out/x.png"])
        assert [item.name for item in (await client.list_resources()).resources] == ["out/x.png"]


async def test_a_figure_of_a_session_is_a_picture(policy: Path) -> None:
    show = f"class Dot:\n  def _repr_png_(self): import base64; return base64.b64decode('{DOT}')\nDot()"
    async with connected("--policy", policy) as client:
        await call(client, "start_session")
        shown = await call(client, "python", session="main", code=show)
        assert pictures(shown) == ["image/png"]


async def test_the_list_of_resources_changes_and_the_client_is_told(policy: Path) -> None:
    seen: list[str] = []
    told = anyio.Event()

    async def handle(message: Any) -> None:
        seen.append(getattr(message, "method", ""))
        told.set()

    async with connected("--policy", policy, mode="legacy", message_handler=handle) as client:
        await call(client, "python", code="print(1)")
        await call(client, "python", code="import os; os.mkdir('out'); open('out/x', 'w')")
        with anyio.fail_after(SECONDS):
            await told.wait()
    assert seen == ["notifications/resources/list_changed"]


async def test_since_2026_a_client_listens_for_changes(policy: Path) -> None:
    era = "2026-07-28"
    async with connected("--policy", policy, mode=era) as client, client.listen(resources_list_changed=True) as events:
        await call(client, "python", code="import os; os.mkdir('out'); open('out/x', 'w')")
        with anyio.fail_after(SECONDS):
            event = await anext(aiter(events))
    assert type(event).__name__ == "ResourcesListChanged"


@pytest.mark.parametrize("era", ERAS)
async def test_output_arrives_while_the_program_runs(policy: Path, era: str) -> None:
    """The program goes on when the client, who has seen its first line, says so."""
    code = (
        "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('last')"
    )
    seen: list[str] = []
    first = anyio.Event()

    async def progress(amount: float, total: float | None, message: str | None) -> None:
        seen.append(message or "")
        first.set()

    async with connected("--policy", policy, mode=era) as client:

        async def answer() -> None:
            await first.wait()
            await call(client, "write_file", path="go", content="")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            result = await client.call_tool("python", {"code": code}, progress_callback=progress)
    assert seen[0] == "first"
    assert "first\nlast" in text_of(result)  # type: ignore[arg-type]


async def test_live_output_tells_amounts_where_the_policy_has_secrets(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hunter2hunter2")
    canary = {"name": "honey", "from_file": str(tmp_path / "key")}
    (tmp_path / "p.yaml").write_text(json.dumps({"version": 1, "filters": {"canaries": [canary]}}))
    seen: list[str] = []

    async def progress(amount: float, total: float | None, message: str | None) -> None:
        seen.append(message or "")

    async with connected("--policy", tmp_path / "p.yaml") as client:
        code = "import time\nfor _ in range(2):\n  print('hun' + 'ter' + str(2), flush=True); time.sleep(0.3)"
        await client.call_tool("python", {"code": code}, progress_callback=progress)
    assert seen
    assert all(line.endswith("B of output") for line in seen)


@pytest.mark.parametrize("era", ERAS)
async def test_cancelling_a_call_ends_the_run_for_real(policy: Path, era: str) -> None:
    async with connected("--policy", policy, mode=era) as client:
        await cancel_a_call(client)


async def cancel_a_call(client: Client) -> None:
    """And see that the program, which writes all the time, writes no more."""
    started = anyio.Event()

    async def progress(amount: float, total: float | None, message: str | None) -> None:
        started.set()

    beat = (
        "import time\nprint('up', flush=True)\nwhile True: open('beat', 'w').write(str(time.time())); time.sleep(0.01)"
    )
    async with anyio.create_task_group() as tasks:

        async def endless() -> None:
            await client.call_tool("python", {"code": beat}, progress_callback=progress)

        tasks.start_soon(endless)
        with anyio.fail_after(SECONDS):
            await started.wait()
        tasks.cancel_scope.cancel()
    for _ in range(100):
        before = await text(client, "read_file", path="beat")
        await anyio.sleep(0.1)
        if before == await text(client, "read_file", path="beat"):
            return
    pytest.fail("it still runs")


async def test_log_messages_tell_of_denials_to_those_who_want_them(policy: Path) -> None:
    seen: list[str] = []

    async def logging(params: Any) -> None:
        seen.append(f"{params.level}: {params.data}")

    async with connected("--policy", policy, mode="legacy", logging_callback=logging) as client:
        await call(client, "shell", command="rm x")
        with pytest.warns(MCPDeprecationWarning):
            await client.session.set_logging_level("error")
        await call(client, "shell", command="rm y")
    assert [line.partition(" by ")[0] for line in seen] == ["warning: shell: Denied"]


class Person:
    """In front of a client; has one answer to everything."""

    def __init__(self, action: str, **content: str) -> None:
        self.answer = ElicitResult(action=action, content=content or None)  # type: ignore[arg-type]
        self.read: list[str] = []

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        self.read.append(params.message)
        return self.answer


@pytest.fixture
def careful(tmp_path: Path) -> Path:
    (tmp_path / "careful.yaml").write_text("version: 1\nname: careful\napprovals: [{tool: python}]\n")
    return tmp_path / "careful.yaml"


@pytest.mark.parametrize("era", ERAS)
async def test_a_person_in_front_of_the_client_says_yes_or_no(careful: Path, era: str) -> None:
    person = Person("accept", decision="approve")
    async with connected("--policy", careful, mode=era, elicitation_callback=person) as client:
        assert await text(client, "python", code="print(6 * 7)") == "Success.\nstdout:\n42"
        assert await text(client, "write_file", path="x", content="") == "Wrote 0B to x."
        assert len(person.read) == 1
        assert "   1 | print(6 * 7)" in person.read[0]
        await call(client, "start_session")
        for no in (
            ElicitResult(action="accept", content={"decision": "deny", "reason": "too bold"}),
            ElicitResult(action="accept", content={"decision": "yes"}),
            ElicitResult(action="accept"),
            ElicitResult(action="decline"),
            ElicitResult(action="cancel"),
        ):
            person.answer = no
            refused = await call(client, "python", code="print(1)", session="main")
            assert (refused.is_error, refused.structured_content["status"]) == (True, "denied")
            assert "denied by" in text_of(refused)
    assert len(person.read) == 6


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_cannot_ask_is_told_who_can(careful: Path, era: str) -> None:
    async with connected("--policy", careful, mode=era) as client:
        refused = await call(client, "python", code="print('approved')")
        assert refused.structured_content["status"] == "denied"
        command = text_of(refused).partition("`")[2].partition("`")[0]
        assert command.startswith("hood approvals approve ask_")
        assert command in await text(client, "python", code="print('approved')")  # the same question, still open
        await anyio.run_process([*HOOD, *command.split()[1:]], env=environment())
        assert await text(client, "python", code="print('approved')") == "Success.\nstdout:\napproved"
        assert "hood approvals approve" in await text(client, "python", code="print('approved')")  # it was for once


async def test_the_client_is_not_asked_where_approvals_come_from_elsewhere(careful: Path) -> None:
    person = Person("accept", decision="approve")
    async with connected("--policy", careful, "--approve-elsewhere", elicitation_callback=person) as client:
        assert "hood approvals approve" in await text(client, "python", code="print(1)")
    assert person.read == []


async def test_what_is_longer_than_anybody_would_read_in_a_form_is_not_asked_there(careful: Path) -> None:
    person = Person("accept", decision="approve")
    async with connected("--policy", careful, elicitation_callback=person) as client:
        assert "hood approvals approve" in await text(client, "python", code="x = 1\n" * 5000)
    assert person.read == []


async def test_an_answer_to_what_was_not_asked_approves_nothing(careful: Path) -> None:
    """A question of somebody else's, whose name a client has guessed."""
    async with connected("--policy", careful, mode="2026-07-28") as asked:
        refused = await text(asked, "python", code="print(2)")
        name = refused.partition("approve ask_")[2].partition("`")[0]
        yes = {f"ask_{name}": ElicitResult(action="accept", content={"decision": "approve"})}
        async with connected("--policy", careful, mode="2026-07-28") as other:
            await other.session.call_tool("python", {"code": "print(1)"}, input_responses=yes)  # type: ignore[dict-item]
        assert "hood approvals approve" in await text(asked, "python", code="print(2)")


async def test_every_call_is_in_the_audit_log(policy: Path, audit_folder: str) -> None:
    log = AuditLog.at(audit_folder)
    before = max((record.seq for record in log.find(Query(kind="tool"))), default=0)
    async with connected("--policy", policy) as client:
        await call(client, "shell", command="seq 1")
        await call(client, "shell", command="rm x")
    new = [record for record in log.find(Query(kind="tool")) if record.seq > before]
    ours = [(record.kind, record.data.get("status")) for record in new if record.data["tool"] == "shell"]
    assert ours == [
        ("tool.called", None),
        ("tool.returned", "success"),
        ("tool.called", None),
        ("tool.returned", "denied"),
    ]


def test_bad_lines_are_answered_and_the_server_goes_on() -> None:
    lines: list[bytes] = [
        json.dumps(HELLO).encode(),
        b"this is no JSON",
        b"",
        b"[1, 2]",
        b'{"jsonrpc": "2.0", "id": 7, "method": 5}',
        b'{"jsonrpc": "2.0", "id": 8, "method": "no/such/method"}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'"' + b"x" * (9 * 1024 * 1024) + b'"',
        b'{"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "rm"}}',
        b'{"jsonrpc": "2.0", "id": 10, "method": "tools/call", "params": {"name": 5}}',
        b'{"jsonrpc": "2.0", "id": 11, "method": "tools/call", "params": {"name": "python", "arguments": [1]}}',
        b'{"jsonrpc": "2.0", "id": 12, "method": "tools/list", "params": {"cursor": "x"}}',
        b'{"jsonrpc": "2.0", "id": 13, "method": "ping"}',
    ]
    answers: dict[object, list[dict[str, Any]]] = {}
    with open_hood("mcp") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in lines:
            process.stdin.write(line + b"\n")
            process.stdin.flush()
        while 13 not in answers or len(answers.get(None, [])) < 5 or len(answers) < 9:
            answer = json.loads(process.stdout.readline())
            answers.setdefault(answer.get("id"), []).append(answer)
        process.stdin.close()
        assert process.wait(SECONDS) == 0
        assert process.stdout.read() == b""
    assert_nothing_is_left(process.pid)
    assert sorted(answer["error"]["code"] for answer in answers[None]) == [-32700, -32700, -32700, -32600, -32600]
    assert answers[1][0]["result"]["serverInfo"]["name"] == "fumehood"
    assert answers[13][0]["result"] == {}
    codes = {name: answers[name][0]["error"]["code"] for name in (7, 8, 9, 10, 11, 12)}
    assert codes == {7: -32600, 8: -32601, 9: -32602, 10: -32602, 11: -32602, 12: -32602}
    assert answers[9][0]["error"]["message"] == "there is no tool 'rm'; tools/list has those that there are"


STRAY = """
import os, sys
from fumehood.integrations.mcp.calls import CallHandler
call = CallHandler.call
async def noisy(self, *rest):
    print("stray")
    os.system("echo stray; cat")
    return await call(self, *rest)
CallHandler.call = noisy
sys.argv = ["hood", "mcp"]
from fumehood.cli import main
main()
"""


def test_standard_output_carries_nothing_but_messages() -> None:
    run = {"name": "python", "arguments": {"code": "print(1)"}}
    messages = [HELLO, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": run}]
    command = [sys.executable, "-c", STRAY]
    environ = {**os.environ, **environment()}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environ, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        process.stdin.flush()
        assert [json.loads(process.stdout.readline())["id"] for _ in messages] == [1, 2]
        rest, complaints = process.communicate(timeout=SECONDS)
    assert (process.returncode, rest, complaints.count(b"stray")) == (0, b"", 2)


CLIENT_CODE = (
    "import subprocess, threading; subprocess.Popen(['sleep', '1000'])\n"
    "print('up', flush=True); threading.Event().wait()"
)
CLIENT = f"""
import anyio, sys
from live.mcp_host import parameters
from mcp import Client
async def main():
    async with Client(parameters(sys.argv[1])) as client:
        async def up(*_): print('up', flush=True)
        await client.call_tool('python', {{'code': {CLIENT_CODE!r}}}, progress_callback=up)
anyio.run(main)
"""


def test_a_client_that_is_killed_leaves_nothing() -> None:
    command = [sys.executable, "-W", "ignore", "-c", CLIENT, "--timeout=100s"]
    environ = {**os.environ, **environment()}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, start_new_session=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"up\n"
        processes = descendants(client.pid)
        assert len(processes) > 3
        client.kill()
    wait_until(lambda: not any(map(is_alive, processes)), 20.0, "the server ends with its client")


def test_control_c_ends_it_and_leaves_nothing() -> None:
    with open_terminal("mcp") as terminal:
        terminal.type(json.dumps(HELLO).encode() + b"\n")
        terminal.wait_for(b"serverInfo")
        terminal.type(b"\x03")
        assert terminal.wait_for_end() == 0
    assert_nothing_is_left(terminal.process.pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_the_middle_of_a_run(number: signal.Signals) -> None:
    run = {"name": "python", "arguments": {"code": "while True: print(1)"}, "_meta": {"progressToken": 1}}
    messages = [
        HELLO,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": run},
    ]
    with open_hood("mcp") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for message in messages:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
        process.stdout.readline()
        assert b"notifications/progress" in process.stdout.readline()
        process.send_signal(number)
        assert process.wait(SECONDS) == 0
    assert_nothing_is_left(process.pid)


def test_it_ends_with_its_input_and_with_its_reader() -> None:
    assert hood("mcp", stdin=b"").returncode == 0
    with open_hood("mcp") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        process.stdin.write(json.dumps(HELLO).encode() + b"\n")
        process.stdin.flush()
        assert process.wait(SECONDS) == 0
    assert_nothing_is_left(process.pid)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--policy", "/no/such/file"], "/no/such/file"),
        (["--backend", "hovercraft"], "--backend"),
        (["--idle", "soon", "--http", ":0"], "--idle 'soon'"),
        (["--clients", "0", "--http", ":0"], "--clients 0"),
        (["--http", "nonsense"], "must be HOST:PORT"),
        (["--http", "0.0.0.0:0"], "give them a token with --token-file"),
        (["--token-file", "x"], "are for --http"),
        (["--http", ":0", "--token-file", "/no/such/file"], "No such file"),
        (["--env", "A=B"], "unknown option --env"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], complaint: str) -> None:
    done = hood("mcp", *arguments)
    assert done.returncode == 2
    assert done.stdout == b""
    assert complaint in done.stderr.decode()
    assert len(done.stderr.splitlines()) == 1


def test_without_the_sdk_it_says_how_to_install_it(tmp_path: Path) -> None:
    code = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'mcp' else real(name, *rest)\n"
        "sys.argv = ['hood', 'mcp']; from fumehood.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **environment()}, capture_output=True)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"hood: hood mcp needs the protocol's SDK: pip install 'fumehood[mcp]'\n"
