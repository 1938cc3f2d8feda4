"""E2B's own SDK for Python against a server of ours: every call that it has, and its errors."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import httpx
import pytest
from e2b import (
    AsyncSandbox,
    AuthenticationException,
    CommandExitException,
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    NotEnoughSpaceException,
    NotFoundException,
    SandboxException,
    SandboxNotFoundException,
    SandboxNotRunningException,
    SandboxQuery,
    TimeoutException,
)
from e2b.sandbox.commands.command_handle import PtySize
from e2b.sandbox.filesystem.watch_handle import FilesystemEvent, FilesystemEventType
from e2b_code_interpreter import Sandbox
from live.e2b_server import E2bServer, serving
from live.traces import wait_until

from fumehood.errors import UsageError
from fumehood.server.listener import _bound
from fumehood.server.settings import load_settings

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2bServer]:
    with serving(tmp_path_factory.mktemp("e2b")) as opened, pytest.MonkeyPatch.context() as patch:
        for name, value in opened.environment.items():
            patch.setenv(name, value)
        yield opened


@pytest.fixture(scope="module")
def box(server: E2bServer) -> Iterator[Sandbox]:
    with Sandbox.create(timeout=300, metadata={"of": "tests"}, envs={"COLOUR": "red"}) as opened:
        yield opened


# Sandboxes.


def test_a_sandbox_is_created_found_listed_and_killed(server: E2bServer) -> None:
    box = Sandbox.create(timeout=60, metadata={"job": "one"})
    assert box.is_running()
    box.set_timeout(120)
    info = box.get_info()
    assert (info.metadata, info.state.value) == ({"job": "one"}, "running")
    assert 100 < (info.end_at - info.started_at).total_seconds() < 180
    again = Sandbox.connect(box.sandbox_id, timeout=60)
    assert again.commands.run("echo same").stdout == "same\n"
    assert (again.get_info().end_at - info.end_at).total_seconds() > -1, "connecting brings no end nearer"
    assert [each.sandbox_id for each in Sandbox.list(SandboxQuery(metadata={"job": "one"})).next_items()] == [
        box.sandbox_id
    ]
    assert box.kill() is True
    assert box.kill() is False
    assert not box.is_running()
    with pytest.raises(SandboxNotFoundException):
        box.get_info()
    with pytest.raises(SandboxNotFoundException):
        box.set_timeout(60)
    with pytest.raises(SandboxNotRunningException):
        box.commands.run("true")


def test_a_sandbox_ends_at_its_timeout(server: E2bServer) -> None:
    box = Sandbox.create(timeout=60)
    box.set_timeout(0)
    wait_until(lambda: not box.is_running(), 20.0, "the sandbox has ended")


def test_lists_come_in_pages(box: Sandbox) -> None:
    with Sandbox.create(timeout=60, metadata={"page": "yes"}), Sandbox.create(timeout=60, metadata={"page": "yes"}):
        pages = Sandbox.list(SandboxQuery(metadata={"page": "yes"}), limit=1)
        seen: list[str] = []
        while pages.has_next:
            items = pages.next_items()
            assert len(items) == 1
            seen += [item.sandbox_id for item in items]
        assert len(set(seen)) == 2


def test_metrics_are_what_the_kernel_counted(box: Sandbox) -> None:
    box.files.write("large.bin", b"x" * 3_000_000)
    box.commands.run("python3 -c 'x = b\"y\" * 40_000_000'")
    [metric] = box.get_metrics()
    assert metric.mem_used > 40_000_000
    assert 3_000_000 < metric.disk_used < metric.disk_total == 512 * 2**20


def test_a_template_is_a_policy_of_the_tenant(server: E2bServer) -> None:
    with Sandbox.create("small", timeout=60) as box:
        with pytest.raises(SandboxException, match="rm"):
            box.commands.run("rm -rf x")
        box.files.write("secret.txt", "x")
        with pytest.raises(SandboxException, match=r"403.*outputs"):
            box.files.read("secret.txt")
        box.files.write("out/half", b"x" * 600_000)
        with pytest.raises(NotEnoughSpaceException, match="full"):
            box.files.write("out/other", b"x" * 600_000)
        with pytest.raises(NotEnoughSpaceException, match="more than 1M"):
            box.files.write("out/large", b"x" * 2_000_000, use_octet_stream=True)
    with pytest.raises(SandboxException, match="no policy 'unknown'"):
        Sandbox.create("unknown")


def test_networks_are_narrowed_and_never_widened(server: E2bServer) -> None:
    with Sandbox.create("online", timeout=60) as box:
        assert box.get_info().allow_internet_access
        box.update_network({"allow_out": ["api.example.com"], "deny_out": ["0.0.0.0/0"]})
        for wider in ("example.com", "a.example.org", "*.example.org", "10.0.0.0/8"):
            with pytest.raises(SandboxException, match="403"):
                box.update_network({"allow_out": [wider]})
        box.update_network({"allow_internet_access": False})
        assert not box.get_info().allow_internet_access
    with Sandbox.create("online", timeout=60, allow_internet_access=False) as box:
        assert not box.get_info().allow_internet_access
        with pytest.raises(SandboxException):
            box.update_network({"allow_out": ["api.example.com"]})


def test_what_is_not_there_says_so(box: Sandbox) -> None:
    for call in (box.pause, box.create_snapshot, box.fork, lambda: Sandbox.create(lifecycle={"on_timeout": "pause"})):
        with pytest.raises(SandboxException, match=r"501.* not there"):
            call()


def test_keys_and_users_that_are_not_accepted(server: E2bServer, box: Sandbox) -> None:
    for key in ("e2b_" + "0" * 40, "e2b_zz", "fh_none"):
        with pytest.raises(AuthenticationException):
            Sandbox.create(api_key=key)
    with pytest.raises(SandboxNotFoundException):
        Sandbox.connect(box.sandbox_id, api_key=server.foreign_key)
    with pytest.raises(SandboxException, match="the user 'root' does not exist"):
        box.commands.run("id", user="root")
    with pytest.raises(SandboxException, match="the user 'root' does not exist"):
        box.files.read("x", user="root")


# Commands.


def test_commands_have_output_variables_folders_and_errors(box: Sandbox) -> None:
    seen: list[str] = []
    done = box.commands.run(
        "echo $COLOUR $SHAPE; pwd; echo oops >&2",
        envs={"SHAPE": "round"},
        cwd="/tmp",
        on_stdout=seen.append,
        on_stderr=seen.append,
        user="user",
    )
    assert (done.stdout, done.stderr, done.exit_code) == ("red round\n/tmp\n", "oops\n", 0)
    assert sorted("".join(seen).splitlines()) == ["/tmp", "oops", "red round"]
    assert box.commands.run("pwd; cd ~; pwd; echo x > made; ls /home/user/made").stdout == (
        "/home/user\n/home/user\n/home/user/made\n"
    )
    with pytest.raises(CommandExitException) as failed:
        box.commands.run("echo no >&2; exit 3")
    assert (failed.value.exit_code, failed.value.stderr) == (3, "no\n")
    with pytest.raises(TimeoutException):
        box.commands.run("sleep 60", timeout=1)
    with pytest.raises(InvalidArgumentException, match="/nowhere"):
        box.commands.run("true", cwd="/nowhere")
    wait_until(lambda: not box.commands.list(), 20.0, "what ran for too long has ended, too")


def test_a_background_command_takes_input_and_has_several_readers(box: Sandbox) -> None:
    handle = box.commands.run("while read line; do echo got $line; done; echo end", background=True, stdin=True)
    assert [(each.pid, each.cmd) for each in box.commands.list()] == [(handle.pid, "/bin/bash")]
    other = box.commands.connect(handle.pid)
    box.commands.send_stdin(handle.pid, "one\n")
    box.commands.stream_input(handle.pid, ["two\n", b"three\n"])
    box.commands.close_stdin(handle.pid)
    expected = "got one\ngot two\ngot three\nend\n"
    assert (handle.wait().stdout, other.wait().stdout) == (expected, expected)
    with pytest.raises(NotFoundException):
        box.commands.connect(handle.pid)
    with pytest.raises(NotFoundException):
        box.commands.send_stdin(handle.pid, "x")


def test_a_command_goes_on_without_a_reader_and_is_killed(box: Sandbox) -> None:
    handle = box.commands.run("yes & sleep 100", background=True)
    next(iter(handle))
    handle.disconnect()
    assert handle.pid in [each.pid for each in box.commands.list()]
    late = box.commands.connect(handle.pid)
    assert box.commands.kill(handle.pid) is True
    with pytest.raises(CommandExitException):
        late.wait()
    assert box.commands.kill(handle.pid) is False
    without_input = box.commands.run("sleep 100", background=True)
    with pytest.raises(SandboxException, match="without stdin"):
        without_input.send_stdin("x")
    without_input.kill()


def test_a_terminal_is_typed_into_resized_and_killed(box: Sandbox) -> None:
    terminal = box.pty.create(PtySize(rows=24, cols=80))
    seen = bytearray()

    def follow() -> None:
        with suppress(CommandExitException):
            terminal.wait(on_pty=seen.extend)

    reader = threading.Thread(target=follow)
    reader.start()
    box.pty.resize(terminal.pid, PtySize(rows=30, cols=100))
    box.pty.send_stdin(terminal.pid, b"stty size\n")
    wait_until(lambda: b"30 100" in seen, 20.0, "the terminal has its new size")
    assert box.pty.kill(terminal.pid) is True
    reader.join(20)
    assert not reader.is_alive()


# Files.


def test_files_go_in_and_out_in_every_form(box: Sandbox) -> None:
    info = box.files.write("notes/a.txt", "text é")
    assert (info.path, info.type) == ("/home/user/notes/a.txt", FileType.FILE)
    assert box.files.read("notes/a.txt") == "text é"
    assert box.files.read("/home/user/notes/a.txt", format="bytes") == "text é".encode()
    box.files.write("b.bin", io.BytesIO(b"z" * 2_500_000))
    with box.files.read("b.bin", format="stream") as stream:
        assert b"".join(stream) == b"z" * 2_500_000
    box.files.write("zipped", b"g" * 100_000, gzip=True)
    assert box.files.read("zipped", gzip=True) == "g" * 100_000
    box.files.write("empty", "")
    assert box.files.read("empty") == ""
    several = box.files.write_files([{"path": "many/1", "data": "1"}, {"path": "many/2", "data": b"2"}])
    assert [each.path for each in several] == ["/home/user/many/1", "/home/user/many/2"]
    box.files.write("/tmp/kept", "kept")
    assert box.commands.run("cat /tmp/kept").stdout == "kept"


def test_entries_are_listed_described_moved_and_removed(box: Sandbox) -> None:
    assert box.files.make_dir("tree/deep") is True
    assert box.files.make_dir("tree/deep") is False
    box.files.write("tree/deep/x", "12345")
    box.commands.run("ln -s deep/x tree/link; chmod 640 tree/deep/x")
    listed = {each.path: each for each in box.files.list("tree", depth=2)}
    assert set(listed) == {"/home/user/tree/deep", "/home/user/tree/deep/x", "/home/user/tree/link"}
    entry = box.files.get_info("tree/deep/x")
    assert (entry.size, entry.mode, entry.permissions, entry.owner) == (5, 0o640, "-rw-r-----", "user")
    assert box.files.get_info("tree/link").symlink_target == "/home/user/tree/deep/x"
    moved = box.files.rename("tree/deep/x", "elsewhere/y")
    assert (moved.path, box.files.read("elsewhere/y")) == ("/home/user/elsewhere/y", "12345")
    assert not box.files.exists("tree/deep/x")
    box.files.remove("tree")
    assert not box.files.exists("tree")
    for call in (box.files.read, box.files.get_info, box.files.list, lambda path: box.files.rename(path, "z")):
        with pytest.raises(FileNotFoundException):
            call("not/there")
    with pytest.raises(InvalidArgumentException):
        box.files.list("elsewhere/y")
    with pytest.raises(InvalidArgumentException, match="directory"):
        box.files.write("elsewhere", "x")
    with pytest.raises(SandboxException, match="501"):
        box.files.write("labelled", "x", metadata={"author": "me"})


def test_a_folder_is_watched_by_asking(box: Sandbox) -> None:
    box.files.make_dir("seen")
    handle = box.files.watch_dir("seen", recursive=True)
    box.files.write("seen/sub/new.txt", "1")
    events: list[tuple[str, FilesystemEventType]] = []

    def is_written() -> bool:
        events.extend((each.name, each.type) for each in handle.get_new_events())
        return ("sub/new.txt", FilesystemEventType.WRITE) in events

    wait_until(is_written, 20.0, "the watcher has seen the file")
    assert ("sub", FilesystemEventType.CREATE) in events
    handle.stop()
    with pytest.raises(SandboxException):
        handle.get_new_events()
    with pytest.raises(FileNotFoundException):
        box.files.watch_dir("not/there")


def test_signed_addresses_work_for_what_they_were_made_for(server: E2bServer, box: Sandbox) -> None:
    box.files.write("shared.txt", "content")
    url = box.download_url("shared.txt", use_signature_expiration=60)
    assert httpx.get(url).text == "content"
    upload = box.upload_url("uploaded.txt")
    assert httpx.post(upload, files={"file": ("any", b"sent")}).json()[0]["path"] == "/home/user/uploaded.txt"
    assert box.files.read("uploaded.txt") == "sent"
    expired = box.download_url("shared.txt", use_signature_expiration=-1)
    for forged in (url.replace("shared.txt", "b.bin"), upload, expired, url.replace("signature_expiration=", "x=")):
        assert httpx.get(forged).status_code == 502


# Code.


def test_code_has_results_charts_errors_and_state(box: Sandbox) -> None:
    assert box.run_code("x = 20\nx + 1").text == "21"
    printed: list[str] = []
    execution = box.run_code("print('hello'); x", on_stdout=lambda message: printed.append(message.line))
    assert (execution.text, "".join(execution.logs.stdout), "".join(printed)) == ("20", "hello\n", "hello\n")
    failed = box.run_code("def f():\n    raise ValueError('two\\nlines')\nf()").error
    assert failed is not None
    assert (failed.name, failed.value) == ("ValueError", "two\nlines")
    assert "in f" in failed.traceback
    broken = box.run_code("x = = 1").error
    assert broken is not None
    assert broken.name == "SyntaxError"
    methods = ("def _repr_png_(self): return b'\\x89PNG'", "def _repr_html_(self): return '<b>chart</b>'")
    shown = box.run_code("class Chart:\n    " + "\n    ".join(methods) + "\nChart()")
    assert (shown.results[0].png, shown.results[0].html) == ("iVBORw==", "<b>chart</b>")
    assert box.run_code("import os; os.environ['COLOUR'] + os.environ['ONCE']", envs={"ONCE": "!"}).text == "'red!'"
    assert box.run_code("os.environ.get('ONCE')").text is None
    assert box.run_code("echo $COLOUR $0", language="bash").logs.stdout[0].startswith("red")
    with pytest.raises(SandboxException, match="cobol"):
        box.run_code("x", language="cobol")


def test_contexts_are_made_listed_restarted_and_removed(box: Sandbox) -> None:
    context = box.create_code_context(cwd="/tmp")
    assert (context.cwd, context.language) == ("/tmp", "python")
    box.run_code("y = 5", context=context)
    assert box.run_code("import os; (y, os.getcwd())", context=context).text == "(5, '/tmp')"
    assert box.run_code("y").error is not None, "another context has another state"
    assert context.id in [each.id for each in box.list_code_contexts()]
    box.restart_code_context(context)
    assert box.run_code("'y' in globals()", context=context).text == "False"
    assert box.run_code("import os; os.getcwd()", context=context).text == "'/tmp'"
    box.remove_code_context(context)
    with pytest.raises(NotFoundException):
        box.run_code("1", context=context)
    with pytest.raises(SandboxException, match="the state of Python"):
        box.create_code_context(language="r")
    with pytest.raises(SandboxException, match="/nowhere"):
        box.create_code_context(cwd="/nowhere")


# Ports.


def test_a_published_port_is_reached_by_its_host_with_the_token(server: E2bServer) -> None:
    with Sandbox.create("web", timeout=120) as box:
        box.files.write("index.html", "served")
        box.commands.run("python3 -m http.server 8000", background=True, timeout=0)
        host = box.get_host(8000)
        assert host == f"8000-{box.sandbox_id}.localhost:{server.port}"
        headers = {"Host": host, "E2B-Traffic-Access-Token": str(box.traffic_access_token)}

        def answer() -> httpx.Response:
            return httpx.get(f"{server.url}/index.html", headers=headers)

        wait_until(lambda: answer().status_code == 200, 20.0, "the server inside listens")
        assert answer().text == "served"
        assert httpx.get(server.url, headers={"Host": host}).status_code == 502, "without the token"
        closed = {**headers, "Host": box.get_host(9000)}
        assert httpx.get(server.url, headers=closed).status_code == 403, "a port that the policy does not publish"


# The asynchronous half of the SDK: the same server, and its own ways to read streams.


async def test_the_asynchronous_sdk_streams_commands_and_watches(server: E2bServer) -> None:
    async with await AsyncSandbox.create(timeout=60) as box:
        seen: list[str] = []
        done = await box.commands.run("for i in 1 2 3; do echo $i; done", on_stdout=seen.append)
        assert (done.stdout, "".join(seen)) == ("1\n2\n3\n", "1\n2\n3\n")
        is_written = anyio.Event()

        def look(event: FilesystemEvent) -> None:
            if (event.name, event.type) == ("watched.txt", FilesystemEventType.WRITE):
                is_written.set()

        handle = await box.files.watch_dir(".", look)
        await box.files.write("watched.txt", "x")
        async with await box.files.read("watched.txt", format="stream") as stream:
            assert b"".join([chunk async for chunk in stream]) == b"x"
        background = await box.commands.run("cat", background=True, stdin=True)
        async with box.commands.stream_input(background.pid) as typed:
            await typed.send("through\n")
        await background.close_stdin()
        assert (await background.wait()).stdout == "through\n"
        with anyio.fail_after(20):
            await is_written.wait()
        await handle.stop()


# `hood serve` itself.


def test_hood_serve_prints_what_a_program_needs(tmp_path: Path) -> None:
    (tmp_path / "server.yaml").write_text("strict: false\n")
    places = ["--listen", "127.0.0.1:0", "--e2b", "127.0.0.1:0", "--config", tmp_path / "server.yaml"]
    command = [sys.executable, "-m", "fumehood", "serve", "--init", "acme", *places]
    environment = {**os.environ, "FUMEHOOD_SERVER_STATE": str(tmp_path / "state")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        try:
            given: dict[str, str] = {}
            while "E2B_SANDBOX_URL" not in given:
                line = server.stdout.readline()
                assert line, "it ended"
                given |= dict(word.split("=", 1) for word in line.split() if "=" in word and "(" not in word)
            chosen = {"api_key": given["E2B_API_KEY"], "api_url": given["E2B_API_URL"]}
            with Sandbox.create(timeout=60, **chosen, sandbox_url=given["E2B_SANDBOX_URL"]) as box:
                assert box.commands.run("echo $HOME").stdout == "/home/user\n"
                assert box.get_info().template_id == "base"
        finally:
            server.terminate()
            assert server.wait(60) == 0


def test_the_protocol_is_not_served_in_the_open() -> None:
    with pytest.raises(UsageError, match="needs TLS"):
        load_settings(None, e2b="0.0.0.0:8441")


def test_answers_do_not_wait_for_acknowledgements() -> None:
    with _bound(("127.0.0.1", 0), "--e2b") as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
