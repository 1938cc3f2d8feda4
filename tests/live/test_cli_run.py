"""`hood run`: a program behaves as if it ran here, and its end is told in an exit code and a line."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from live.cli_host import HOOD, assert_nothing_is_left, hood, open_hood, open_terminal, wait_for_line
from requirements import require

pytestmark = pytest.mark.usefixtures("way")


def test_code_is_run_and_its_output_shown() -> None:
    done = hood("run", "-c", "print(6 * 7)")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"42\n", b"")


@pytest.mark.parametrize("code", [0, 1, 3, 42, 255])
def test_the_exit_code_is_the_programs(code: int) -> None:
    assert hood("run", "-c", f"raise SystemExit({code})").returncode == code


def test_a_file_runs_under_its_own_name_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "greet.py").write_text("import sys\nprint(sys.argv[1:])\n1 / 0\n")
    done = hood("run", tmp_path / "greet.py", "--", "--name", "x y", "--")
    assert done.stdout == b"['--name', 'x y', '--']\n"
    assert b'greet.py", line 3' in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize(("name", "code"), [("x.sh", "echo $1"), ("x.bash", "a=($1); echo ${a[0]}")])
def test_a_shell_script_runs_in_its_shell(name: str, code: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(code)
    assert hood("run", tmp_path / name, "--", "hello").stdout == b"hello\n"


def test_a_compiled_program_runs_and_its_compiler_is_told_apart(tmp_path: Path) -> None:
    require(os.access("/usr/bin/cc", os.X_OK), "needs a C compiler")
    (tmp_path / "x.c").write_text(
        "#include <stdio.h>\n#warning careful\nint main(int c, char **v) { return !puts(v[1]); }"
    )
    done = hood("run", tmp_path / "x.c", "--", "hello")
    assert (done.returncode, done.stdout) == (0, b"hello\n")
    assert b"x.c:2:2: warning: #warning careful" in done.stderr
    told = json.loads(hood("run", "--json", tmp_path / "x.c", "--", "hello").stdout)
    assert (told["stdout"], told["stderr"]) == ("hello\n", "")
    assert "careful" in told["compilation"]["stderr"]


def test_a_failed_compilation_is_the_exit_code_and_a_line(tmp_path: Path) -> None:
    require(os.access("/usr/bin/cc", os.X_OK), "needs a C compiler")
    (tmp_path / "x.c").write_text("mistake")
    done = hood("run", tmp_path / "x.c")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"x.c:1:" in done.stderr
    assert done.stderr.endswith(b"hood: error (exit): compilation failed: the compiler exited with code 1\n")


def test_code_can_come_from_standard_input() -> None:
    done = hood("run", "--language", "sh", "-", "--", "a", stdin=b"echo $1; cat; echo end")
    assert done.stdout == b"a\nend\n"


def test_standard_input_goes_through_unchanged() -> None:
    data = bytes(range(256)) * 1000
    copy = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
    assert hood("run", "-c", copy, stdin=data).stdout == data


def test_output_in_a_pipe_is_unchanged_and_unmixed() -> None:
    code = r"import os; os.write(1, b'\x1b[2J\xff\x00'); os.write(2, b'\x1b]0;x\x07')"
    done = hood("run", "-c", code)
    assert (done.stdout, done.stderr) == (b"\x1b[2J\xff\x00", b"\x1b]0;x\x07")


def test_output_appears_while_the_program_runs() -> None:
    with open_hood("run", "-c", "print('name?', end='\\n'); print('hello', input())") as process:
        wait_for_line(process.stdout, b"name?\n")
        out, _ = process.communicate(b"you\n", timeout=60)
        assert out == b"hello you\n"


def test_a_dialogue_on_a_terminal_works_and_its_output_is_harmless() -> None:
    code = r"print('\x1b[31mname?\x1b]0;title\x07'); print('hello', input(), end='')"
    with open_terminal("run", "-c", code) as terminal:
        terminal.wait_for("\x1b[31mname?⟨U+001B⟩]0;title⟨U+0007⟩".encode())
        terminal.type(b"you\n")
        assert terminal.wait_for_end() == 0
        assert terminal.seen.endswith(b"hello you\x1b[0m\r\n")


def test_a_line_of_ours_is_seen_whatever_the_program_has_left_on() -> None:
    picture = """
import sys
class Picture:
    def _repr_png_(self): return b"\\x89PNG\\r\\n\\x1a\\n" + b"0" * 100
    def __repr__(self): return "a picture"
sys.{}.write("\\x1b[8mconcealed"); sys.{}.flush()
Picture()"""
    for stream in ("stdout", "stderr"):
        with open_terminal("run", "--session", "-c", picture.format(stream, stream)) as terminal:
            assert terminal.wait_for_end() == 0
        before, told, _ = terminal.seen.partition(b"hood: picture 1")
        assert told
        assert b"\x1b[0m" in before.rpartition(b"\x1b[8m")[2]


def test_a_line_about_a_file_is_seen_too(tmp_path: Path) -> None:
    code = "import sys; open('a.txt', 'w').close(); sys.stdout.write('\\x1b[8mconcealed'); sys.stdout.flush()"
    with open_terminal("run", "--out", str(tmp_path / "out"), "-c", code) as terminal:
        assert terminal.wait_for_end() == 0
    assert b"concealed\x1b[0m\r\nhood: saved " in terminal.seen


def test_only_the_variables_asked_for_get_in() -> None:
    code = "import os; print(os.environ.get('A'), os.environ.get('B'), os.environ.get('SECRET'))"
    environment = {**os.environ, "B": "mine", "SECRET": "no"}
    assert hood("run", "-c", code, "--env", "A=1", "--env", "B", env=environment).stdout == b"1 mine None\n"


def test_a_mounted_folder_is_there_and_read_only(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "x").write_text("data")
    code = "print(open('/data/x').read()); open('/data/y', 'w')"
    done = hood("run", "-c", code, "--mount", f"{tmp_path}:/data")
    assert done.stdout == b"data\n"
    assert b"Read-only file system" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--timeout", "200ms", "-c", "while True: pass"], 124, b"hood: timeout (wall_time): it ran longer than 200ms"),
        (["--memory", "64M", "-c", "x = bytearray(10**9)"], 137, b"hood: resource_exceeded (memory)"),
        (["-c", "import os; os.kill(os.getpid(), 11)"], 139, b"hood: error (signal): the program was ended by SIGSEGV"),
        (["-c", "print('x' * 10**7)"], 123, b"hood: resource_exceeded (output)"),
    ],
)
def test_an_end_by_a_limit_or_signal_is_one_line(arguments: list[str], code: int, said: bytes) -> None:
    done = hood("run", *arguments)
    assert done.returncode == code
    assert said in done.stderr.splitlines()[-1]
    quiet = hood("run", "--quiet", *arguments)
    assert quiet.returncode == code
    assert b"hood:" not in quiet.stderr


def test_a_limit_is_named_by_the_flag_that_raises_it() -> None:
    assert hood("run", "--timeout", "0.1", "-c", "while True: pass").stderr.endswith(b"raise --timeout\n")


def test_the_whole_result_comes_as_json() -> None:
    done = hood("run", "--json", "-c", "import sys; print('out'); sys.exit('err')")
    result = json.loads(done.stdout)
    assert (result["status"], result["cause"], result["exit_code"]) == ("error", "exit", 1)
    assert (result["stdout"], result["stderr"]) == ("out\n", "err\n")
    assert result["policy_digest"].startswith("sha256:")
    assert (done.returncode, done.stderr, done.stdout.count(b"\n")) == (1, b"", 1)


def test_a_policy_is_obeyed_and_can_be_overridden(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("resources: {timeout: 100ms}\n")
    assert hood("run", "--policy", policy, "-c", "while True: pass").returncode == 124
    assert hood("run", "--policy", policy, "--timeout", "30s", "-c", "import time; time.sleep(0.2)").returncode == 0


def test_a_backend_that_is_not_there_is_refused_with_those_that_are() -> None:
    done = hood("run", "--backend", "firecracker", "-c", "print(1)")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"--backend: must be one of auto, native, docker, gvisor, microvm" in done.stderr


def test_a_reader_that_goes_away_ends_the_run_quietly() -> None:
    with open_hood("run", "-c", "while True: print('y')") as process:
        wait_for_line(process.stdout, b"y\n")
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert_nothing_is_left(process.pid)


def test_an_output_that_cannot_be_written_is_our_failure() -> None:
    with open("/dev/full", "wb") as full:
        done = hood("run", "-c", "print(1)", stdout=full)
    assert done.returncode == 125
    assert done.stderr == b"hood: the program's output cannot be written: No space left on device\n"


def test_closed_standard_streams_do_no_harm() -> None:
    command = [sys.executable, "-m", "fumehood", "run", "-c", "print(input())"]
    closed = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command], timeout=60)
    assert closed.returncode == 1


@pytest.mark.plain_only("it looks at the imports of a cold start")
def test_modules_in_the_current_folder_are_not_imported(tmp_path: Path) -> None:
    """A cloned repository may hold files that are called like what we import."""
    for name in ("fumehood_client", "pydantic", "yaml", "anyio", "uv"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w')\n")
    command = [sys.executable, "-m", "fumehood", "run", "-c", "print(1)"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"1\n")
    assert not (tmp_path / "imported").exists()


@pytest.mark.plain_only("it looks at the imports of a cold start")
def test_a_cold_run_does_not_import_what_it_does_not_need() -> None:
    unneeded = "('typer', 'click', 'rich', 'yaml', 'cryptography', 'difflib')"
    program = (
        "import sys; from fumehood.cli.entry import run_command; run_command(['run', '-c', 'pass'])\n"
        f"print([name for name in {unneeded} if name in sys.modules])"
    )
    hood("run", "-c", "pass")  # the first one of all makes the key of the audit log
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_a_session_shows_the_last_value_and_its_pictures(tmp_path: Path) -> None:
    picture = "class Picture:\n    def __repr__(self): return 'a picture'\n"
    picture += "    def _repr_png_(self): return b'\\x89PNG data'\n"
    told = hood("run", "--session", "-c", picture + "print('first')\nPicture()")
    assert (told.returncode, told.stdout) == (0, b"first\na picture\n")
    assert told.stderr == b"hood: picture 1: image/png, 9B; --out DIR saves it\n"
    told = hood("run", "--session", "--out", tmp_path / "new", "-c", picture + "display(Picture())\nPicture()")
    assert told.stdout == b"a picture\na picture\n"
    assert sorted(path.read_bytes() for path in (tmp_path / "new").iterdir()) == [b"\x89PNG data"] * 2
    assert told.stderr.count(b"hood: saved ") == 2


WRITES_TWO = (
    "import os\nos.makedirs('out/deep')\nopen('out/deep/a.csv', 'w').write('1,2')\nopen('b.txt', 'w').write('b')"
)


def test_files_are_saved_under_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "results"
    assert hood("run", "--quiet", "--out", out, "-c", WRITES_TWO).stderr == b""
    assert {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()} == {"out/deep/a.csv", "b.txt"}
    again = hood("run", "--out", out, "-c", f"print('it ran')\n{WRITES_TWO}")
    assert (again.returncode, again.stdout) == (2, b"")
    assert b"is not empty; name a new folder, or let --overwrite replace files in it" in again.stderr


def test_files_are_replaced_when_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("mine")
    assert hood("run", "--out", tmp_path, "--overwrite", "-c", WRITES_TWO).returncode == 0
    assert (tmp_path / "b.txt").read_text() == "b"
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"a.csv", "b.txt"}


def test_no_file_is_written_through_a_link_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "out").symlink_to(tmp_path / "elsewhere")
    done = hood("run", "--out", tmp_path / "results", "--overwrite", "-c", WRITES_TWO)
    assert (done.returncode, b"leads out of the folder by a link" in done.stderr) == (2, True)
    assert [path for path in (tmp_path / "elsewhere").rglob("*") if path.is_file()] == []


def test_words_after_the_file_are_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("import sys; print(sys.argv[1:])")
    done = hood("run", tmp_path / "x.py", "a", "--memory", "256M", "b", "--", "--memory", "c")
    assert done.stdout == b"['a', '--memory', '256M', 'b', '--', '--memory', 'c']\n"


@pytest.mark.parametrize("words", [["--mount=/etc:/host"], ["--mount", "/etc:/host"], ["--policy", "wide.yaml"]])
def test_words_after_the_file_open_nothing(tmp_path: Path, words: list[str]) -> None:
    """A model may have chosen them, or a pattern of a shell in a folder of an attacker's."""
    (tmp_path / "wide.yaml").write_text("filesystem: {mounts: [{source: /etc, target: /host}]}\n")
    (tmp_path / "x.py").write_text("import os, sys; print(os.path.exists('/host'), sys.argv[1:])")
    done = hood("run", tmp_path / "x.py", *words, cwd=tmp_path)
    assert (done.stdout, done.stderr) == (f"False {words}\n".encode(), b"")


def test_a_dangerous_policy_is_named_before_it_runs(tmp_path: Path) -> None:
    done = hood("run", "--mount", "/etc:/data", "-c", "print(1)")
    assert (done.returncode, done.stdout) == (0, b"1\n")
    assert done.stderr.startswith(b"hood: danger: filesystem.mounts[/data]: /etc exposes the host's configuration")
    assert done.stderr.count(b"\n") == 1


def test_a_policy_decides_which_files_are_saved(tmp_path: Path) -> None:
    policy, out = tmp_path / "policy.yaml", tmp_path / "results"
    policy.write_text("filesystem: {outputs: ['out/**']}\n")
    told = hood("run", "--policy", policy, "--out", out, "-c", WRITES_TWO)
    assert told.stderr == f"hood: saved {out}/out/deep/a.csv\n".encode()
    assert [path.name for path in out.rglob("*") if path.is_file()] == ["a.csv"]
    told = hood("run", "--policy", policy, "--out", tmp_path / "none", "-c", "open('elsewhere', 'w')")
    assert told.stderr.startswith(b"hood: nothing to save: the program made no file that filesystem.outputs names (out")
    policy.write_text("{}\n")
    told = hood("run", "--policy", policy, "--out", tmp_path / "other", "-c", WRITES_TWO)
    assert (told.returncode, b"names no filesystem.outputs" in told.stderr) == (2, True)


def test_a_folder_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = hood("run", "--out", tmp_path / "file" / "below", "-c", "print('it ran')")
    assert (told.returncode, told.stdout) == (2, b"")
    assert b"cannot be written" in told.stderr


def test_the_json_of_a_session_has_its_displays() -> None:
    shown = json.loads(hood("run", "--session", "--json", "-c", "6 * 7").stdout)
    assert shown["displays"] == [{"data": {"text/plain": "42"}, "metadata": {}}]


@pytest.mark.parametrize("mask", [0o077, 0o027, 0o777])
def test_what_others_may_see_of_new_files_outside_says_nothing_inside(mask: int) -> None:
    done = hood("run", "-c", "import csv, os; print(oct(os.umask(0)))", umask=mask)
    assert (done.returncode, done.stdout) == (0, b"0o22\n"), done.stderr


def test_the_name_of_a_saved_file_does_not_look_like_a_line_of_ours(tmp_path: Path) -> None:
    done = hood("run", "--out", tmp_path / "out", "-c", r"open('a\nhood: all is well', 'w').close()")
    assert done.returncode == 0
    assert done.stderr.count(b"\n") == 1


def test_a_denied_command_is_told_once_with_what_would_help(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\ncommands:\n  deny: [git push]\n")
    done = hood("run", "--policy", policy, "--language", "bash", "-c", "git push")
    assert done.returncode == 126
    assert done.stderr == b"hood: denied: git push: this is denied; remove 'git push' from commands.deny\n"


def test_a_server_on_the_hosts_loopback_is_hinted_at() -> None:
    code = "import socket; socket.create_connection(('127.0.0.1', 8000))"
    for options in ([], ["--allow", "api.example"]):
        done = hood("run", *options, "-c", code)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == (
            b"hood: error (exit): nothing listens there: a sandbox has a loopback of its own; for a server at this "
            b"machine's 127.0.0.1, add --allow HOST, such as --allow 127.0.0.1:8000"
        )


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("asked", ["127.0.0.1", "localhost"])
def test_the_hosts_loopback_is_reached_by_either_of_its_names(host: str, asked: str) -> None:
    code = "import socket, sys; print(socket.create_connection(('%s', %d)).recv(5).decode())"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with open_hood("run", "--allow", f"{host}:{port}", "-c", code % (asked, port)) as process:
            server.settimeout(30)
            with server.accept()[0] as accepted:
                accepted.sendall(b"hello")
            assert process.communicate(timeout=30) == (b"hello\n", b"")


@pytest.mark.plain_only("the disk is in a mount namespace of its own")
def test_a_full_disk_of_the_host_is_not_called_the_sandboxs(tmp_path: Path) -> None:
    require(os.geteuid() == 0, "needs root for a small disk")
    code = "for name in 'xy': open(f'/data/{name}', 'wb', buffering=0).write(b'x' * 10**6)"
    command = shlex.join([*HOOD, "run", "-v", f"{tmp_path}:/data:rw", "-c", code])
    script = f"mount -t tmpfs -o size=512k none {tmp_path} && {command}"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, check=False, timeout=60)
    assert done.returncode == 123
    assert done.stderr.splitlines()[-1] == (
        b"hood: resource_exceeded (disk): the host's disk behind /data is full; make room where "
        + os.fsencode(tmp_path)
        + b" is"
    )


@pytest.mark.plain_only("the disk is in a mount namespace of its own")
def test_a_full_disk_is_named_with_its_folder(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    require(os.geteuid() == 0, "needs root for a small disk")
    book = tmp_path_factory.mktemp("book") / "x.ipynb"
    book.write_text(json.dumps({"nbformat": 4, "metadata": {}, "cells": [{"cell_type": "code", "source": "pass"}]}))
    code = "import os; open('big', 'wb').write(os.urandom(10**6))"
    named = f"env FUMEHOOD_SANDBOXES={tmp_path}/kept {shlex.join(HOOD)} sandbox"
    script = f"""mount -t tmpfs -o size=512k none {tmp_path}
    {shlex.join([*HOOD, "run", "--out", f"{tmp_path}/out", "-c", code])}; echo $?; ls -A {tmp_path}/out
    head -c 1M /dev/zero > {tmp_path}/filler 2>/dev/null
    {shlex.join([*HOOD, "run", "--out", f"{tmp_path}/out.ipynb", str(book)])}; echo $?; rm {tmp_path}/filler
    {named} create work; {named} exec work -c {shlex.quote(code)}; echo $?; {named} exec work ls"""
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=60)
    out = "Make room, or choose another folder for --out."
    kept = "Make room there (`hood gc`), or set FUMEHOOD_SANDBOXES to a folder on another disk."
    assert [line for line in done.stdout.splitlines() if not line.startswith("work")] == ["125", "125", "125"]
    assert done.stderr.splitlines() == [
        f"hood: saving {tmp_path}/out/big failed: No space left on device. {out}",
        f"hood: saving {tmp_path}/out.ipynb failed: No space left on device. {out}",
        f"hood: saving files of sandboxes failed: there is no room in {tmp_path}/kept. {kept}",
    ]
