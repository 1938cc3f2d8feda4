"""What a program finds around itself: variables, folders, devices, names. Nothing of the host's."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from fumehood import FumehoodError, Sandbox, UsageError

BASE_ENVIRONMENT = {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "PYTHONUNBUFFERED"}
BASE_ENVIRONMENT |= {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOMAXPROCS", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"}
SHOW_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"


def test_the_environment_holds_the_known_variables_and_no_others(box: Sandbox) -> None:
    assert set(json.loads(box.run(SHOW_ENVIRONMENT).stdout)) == BASE_ENVIRONMENT
    command = box.run(argv=["env"]).stdout
    assert {line.partition("=")[0] for line in command.splitlines()} == BASE_ENVIRONMENT


def test_no_variable_of_the_host_reaches_a_run(
    open_box: Callable[..., Sandbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTRACT_SECRET", "hunter2")
    monkeypatch.setenv("LD_PRELOAD_NOT", "x")
    monkeypatch.setenv("PYTHONSTARTUP", "/nowhere")
    box = open_box(resources={"memory": "123M"})  # a policy of its own, so nothing was started before
    for result in (box.run(SHOW_ENVIRONMENT), box.run(argv=["env"]), box.run("export -p", language="sh")):
        assert "hunter2" not in result.stdout
        assert "PYTHONSTARTUP" not in result.stdout


@pytest.mark.one_container
def test_variables_are_passed_and_override_the_base(box: Sandbox) -> None:
    env = {"A": "1", "LANG": "C", "ÜMLAUT": "ä = b", "EMPTY": "", "lower.case": "x"}
    seen = json.loads(box.run(SHOW_ENVIRONMENT, env=env).stdout)
    assert {key: seen[key] for key in env} == env
    assert box.run('echo "$A"', language="sh", env=env).stdout == "1\n"
    assert "A=1" in box.run(argv=["env"], env=env).stdout.splitlines()


@pytest.mark.one_container
def test_variables_last_for_one_run(box: Sandbox) -> None:
    box.run("import os; os.environ['B'] = '2'", env={"A": "1"})
    assert set(json.loads(box.run(SHOW_ENVIRONMENT).stdout)) == BASE_ENVIRONMENT


@pytest.mark.one_container
def test_path_in_the_environment_decides_which_command_runs(box: Sandbox) -> None:
    box.run("import os\nopen('ls', 'w').write('#!/bin/sh\\necho mine')\nos.chmod('ls', 0o755)")
    assert box.run(argv=["ls"], env={"PATH": "/workspace:/usr/bin:/bin"}).stdout == "mine\n"


@pytest.mark.one_container
@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0"}, {"A": "\ud800"}, {"\ud800": "x"}])
def test_variables_that_cannot_exist_are_one_clear_error(box: Sandbox, env: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="environment variable"):
        box.run("pass", env=env)


@pytest.mark.parametrize(
    ("cwd", "seen"),
    [
        ("", "/workspace"),
        ("sub", "/workspace/sub"),
        ("sub/../sub/.", "/workspace/sub"),
        ("/tmp", "/tmp"),
        ("/", "/"),
        ("/workspace/sub", "/workspace/sub"),
        ("mit leerzeichen/ü", "/workspace/mit leerzeichen/ü"),
    ],
)
def test_the_working_folder_is_where_the_caller_wants(box: Sandbox, cwd: str, seen: str) -> None:
    box.run("import os\nos.makedirs('sub')\nos.makedirs('mit leerzeichen/ü')")
    assert box.run("import os; print(os.getcwd())", cwd=cwd).stdout == f"{seen}\n"
    assert box.run(argv=["pwd"], cwd=cwd).stdout == f"{seen}\n"


@pytest.mark.parametrize(
    "cwd", ["missing", "/no/such/folder", "file", "file/below", "closed", "loop", "a\0b", "x" * 5000]
)
def test_a_working_folder_that_cannot_be_entered_is_one_clear_error(box: Sandbox, cwd: str) -> None:
    box.run("import os\nopen('file', 'w')\nos.mkdir('closed', 0)\nos.symlink('loop', 'loop')")
    with pytest.raises(UsageError, match="cwd"):
        box.run("print('ran')", cwd=cwd)
    assert box.run("print('on')").stdout == "on\n"


WORKING = {
    "whoami": (["whoami"], "sandbox\n"),
    "hostname": (["hostname"], "sandbox\n"),
    "id": (["id", "-u"], "1000\n"),
    "groups": (["id", "-G"], "1000\n"),
    "the user in python": (
        "import getpass, os; print(getpass.getuser(), os.path.expanduser('~'))",
        "sandbox /workspace\n",
    ),
    "the host in python": (
        "import socket; print(socket.gethostname(), socket.gethostbyname('localhost'))",
        "sandbox 127.0.0.1\n",
    ),
    "writing to HOME and TMPDIR": (
        (
            "import os\nfor name in ('HOME', 'TMPDIR'):\n    path = os.path.join(os.environ[name], 'x')\n"
            "    open(path, 'w').write('y'); print(open(path).read())"
        ),
        "y\ny\n",
    ),
    "/var/tmp": ("open('/var/tmp/x', 'w').write('y'); print(open('/var/tmp/x').read())", "y\n"),
    "no stranger owns the way to /tmp": (
        "import os; print({os.stat(path).st_uid for path in ('/', '/tmp', '/var/tmp')} <= {0, os.getuid()})",
        "True\n",
    ),
    "/etc/os-release": ("print('ID=' in open('/etc/os-release').read())", "True\n"),
    "/dev/stdout": ("open('/dev/stdout', 'w').write('out\\n')", "out\n"),
    "/dev/stdout in a shell": (["sh", "-c", "echo out > /dev/stdout"], "out\n"),
    "/dev/fd": (["sh", "-c", "echo x | cat /dev/fd/0"], "x\n"),
    "/dev/stdin": ("print(open('/dev/stdin').read())", "\n"),
    "/dev/null": ("open('/dev/null', 'w').write('x'); print(open('/dev/null').read() == '')", "True\n"),
    "/dev/zero": ("print(open('/dev/zero', 'rb').read(2))", "b'\\x00\\x00'\n"),
    "/dev/urandom": ("print(len(open('/dev/urandom', 'rb').read(8)))", "8\n"),
    "/dev/shm": ("open('/dev/shm/x', 'w').write('y'); print(open('/dev/shm/x').read())", "y\n"),
    "no controlling terminal": (
        "try:\n    open('/dev/tty')\nexcept OSError:\n    print('none')",
        "none\n",
    ),
    "a pseudo-terminal": (
        "import os, pty\na, b = pty.openpty()\nprint(os.isatty(b))\nos.write(b, b'x\\n')\nprint(os.read(a, 3))",
        "True\nb'x\\r\\n'\n",
    ),
    "pty.fork": (
        (
            "import os, pty\npid, fd = pty.fork()\nif pid == 0:\n    os.execlp('tty', 'tty')\n"
            "print(os.read(fd, 99).startswith(b'/dev/pts/'))\nos.waitpid(pid, 0)"
        ),
        "True\n",
    ),
    "os.cpu_count": ("import os; print(os.cpu_count() >= 1)", "True\n"),
    "nobody is logged in": ("import os\ntry:\n    os.getlogin()\nexcept OSError:\n    print('nobody')", "nobody\n"),
    "file modes": ("import os; open('x', 'w'); os.chmod('x', 0o640); print(oct(os.stat('x').st_mode))", "0o100640\n"),
    "new files are one's own": ("import os; open('x', 'w'); print(os.stat('x').st_uid == os.getuid())", "True\n"),
    "symbolic and hard links": (
        (
            "import os; open('x', 'w').write('y'); os.link('x', 'h'); "
            "os.symlink('x', 's'); print(open('h').read(), open('s').read())"
        ),
        "y y\n",
    ),
    "renaming between folders": (
        "import os; open('x', 'w'); os.mkdir('d'); os.rename('x', 'd/x'); print(os.listdir('d'))",
        "['x']\n",
    ),
}


@pytest.mark.some_parameters
@pytest.mark.parametrize(("program", "stdout"), WORKING.values(), ids=WORKING.keys())
def test_ordinary_surroundings_work(box: Sandbox, program: str | list[str], stdout: str) -> None:
    result = box.run(program) if isinstance(program, str) else box.run(argv=program)
    assert (result.stdout, result.stderr, result.exit_code) == (stdout, "", 0)


@pytest.mark.parametrize("path", ["/", "/etc", "/usr/lib", "/run/../etc", "/proc/sys/kernel/hostname", "/dev"])
def test_only_the_workspace_and_scratch_folders_are_writable(box: Sandbox, path: str) -> None:
    result = box.run(
        f"import os\ntry:\n    open(os.path.join({path!r}, 'x') if os.path.isdir({path!r}) else {path!r}, 'w')\n"
        "except OSError:\n    print('refused')"
    )
    assert result.stdout == "refused\n"


def test_the_command_line_of_the_program_tells_nothing_of_the_host(box: Sandbox) -> None:
    seen = box.run("import sys; print(sys.orig_argv, open('/proc/self/cmdline').read())").stdout
    assert "fumehood" not in seen
    assert "sys.path" not in seen


def test_nothing_of_another_program_is_in_the_interpreter(box: Sandbox) -> None:
    """A cell's runs have executed a program of ours by the time that they get their own."""
    shown = box.run(
        "import gc, os, sys, threading\n"
        "print(sys.argv[1:], os.path.basename(sys.argv[0]), len(sys.path) - len(set(sys.path)), sys.path[0])\n"
        "print(gc.isenabled(), len(threading.enumerate()), sorted(os.listdir('/proc/self/fd')), os.listdir('/tmp'))\n"
        "print([each for each in vars() if each[0] != '_'], sys.stdout is sys.__stdout__, sys.stdin.fileno())"
    ).stdout
    assert shown.splitlines() == [
        "[] main.py 0 /workspace",
        "True 1 ['0', '1', '2', '3'] []",
        "['gc', 'os', 'sys', 'threading'] True 0",
    ]


@pytest.mark.one_container
def test_what_is_wrong_with_a_request_is_said_before_anything_runs(box: Sandbox) -> None:
    with pytest.raises(FumehoodError):
        box.run("open('ran', 'w')", cwd="missing")
    assert box.run("import os; print(os.listdir())").stdout == "[]\n"


def test_no_program_is_on_the_path_whose_package_is_not_there(box: Sandbox) -> None:
    told = box.run(
        "import shutil, subprocess\npip = shutil.which('pip')\nprint(pip and subprocess.call([pip, '--version']))"
    )
    assert told.stdout.splitlines()[-1] in ("None", "0")
