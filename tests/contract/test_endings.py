"""How a run ends, told as status, cause, exit code and signal. A program that fails is a result, never an exception."""

from __future__ import annotations

import signal

import pytest

from fumehood import Cause, Sandbox, Status

EXITS = {
    "the end of the code": ("x = 1", 0),
    "sys.exit(0)": ("import sys; sys.exit(0)", 0),
    "sys.exit(3)": ("import sys; sys.exit(3)", 3),
    "sys.exit(300)": ("import sys; sys.exit(300)", 44),
    "sys.exit with text": ("import sys; sys.exit('text')", 1),
    "os._exit(7)": ("import os; os._exit(7)", 7),
    "an uncaught exception": ("1 / 0", 1),
    "a syntax error": ("def", 1),
    "an exit code that looks like a timeout": ("import sys; sys.exit(124)", 124),
    "an exit code that looks like a kill": ("import sys; sys.exit(137)", 137),
    "an exit code that looks like ours": ("import sys; sys.exit(125)", 125),
}
SIGNALS = ["SIGTERM", "SIGKILL", "SIGSEGV", "SIGABRT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGALRM", "SIGBUS", "SIGFPE"]


@pytest.mark.parametrize(("source", "code"), EXITS.values(), ids=EXITS.keys())
def test_an_exit_is_told_with_its_code(box: Sandbox, source: str, code: int) -> None:
    result = box.run(source)
    assert (result.exit_code, result.cause, result.signal) == (code, Cause.EXIT, None)
    assert result.status is (Status.ERROR if code else Status.SUCCESS)
    assert result.ok is (code == 0)


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_is_told_by_name(box: Sandbox, name: str) -> None:
    result = box.run(f"import os, signal; os.kill(os.getpid(), signal.{name})")
    assert (result.status, result.cause, result.signal) == (Status.ERROR, Cause.SIGNAL, name)
    assert result.exit_code == 128 + getattr(signal, name)
    assert name in result.detail


@pytest.mark.parametrize("offset", [0, 1, 10, 30])
def test_a_real_time_signal_is_told_too(box: Sandbox, offset: int) -> None:
    result = box.run(f"import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + {offset})")
    assert (result.status, result.cause) == (Status.ERROR, Cause.SIGNAL)
    assert result.exit_code == 128 + signal.SIGRTMIN + offset
    assert result.signal


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import os; os.abort()", "SIGABRT"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("raise KeyboardInterrupt", "SIGINT"),
        ("import signal; signal.raise_signal(signal.SIGTERM)", "SIGTERM"),
        ("import signal, threading; signal.alarm(1); threading.Event().wait()", "SIGALRM"),
    ],
)
def test_a_program_that_ends_itself_violently(box: Sandbox, source: str, name: str) -> None:
    result = box.run(source)
    assert (result.cause, result.signal) == (Cause.SIGNAL, name)


def test_a_signal_in_a_child_is_not_the_programs_own(box: Sandbox) -> None:
    result = box.run(argv=["sh", "-c", "sh -c 'kill -9 $$'; exit 4"])
    assert (result.cause, result.exit_code, result.signal) == (Cause.EXIT, 4, None)


def test_output_before_a_violent_end_is_kept(box: Sandbox) -> None:
    result = box.run("import os\nprint('before', flush=True)\nos.kill(os.getpid(), 9)")
    assert result.stdout == "before\n"


@pytest.mark.one_container
def test_a_partial_line_before_a_violent_end_is_kept(box: Sandbox) -> None:
    """The environment says PYTHONUNBUFFERED, so nothing may wait for a newline."""
    result = box.run("import os\nprint('before', end='')\nos.kill(os.getpid(), 9)")
    assert result.stdout == "before"


@pytest.mark.one_container
def test_a_traceback_shows_the_users_file_and_line_and_nothing_of_ours(box: Sandbox) -> None:
    result = box.run("def f():\n    raise ValueError('broken')\n\nf()\n")
    assert '  File "/run/main.py", line 4, in <module>\n    f()\n' in result.stderr
    assert "  File \"/run/main.py\", line 2, in f\n    raise ValueError('broken')\n" in result.stderr
    assert result.stderr.endswith("ValueError: broken\n")
    assert result.stderr.count("File ") == 2


@pytest.mark.one_container
def test_a_traceback_shows_the_name_that_the_caller_gave(box: Sandbox) -> None:
    result = box.run("1 / 0", name="näme with spaces.py")
    assert 'File "/run/näme with spaces.py", line 1, in <module>' in result.stderr


@pytest.mark.parametrize(
    "source", ["import os; os.fork(); os.fork()", "import os; os.setsid(); os.fork() or os.fork()"]
)
def test_processes_left_behind_do_not_hold_up_the_end(box: Sandbox, source: str) -> None:
    waiting = "; import signal; signal.pause()"
    result = box.run(f"import os\nif os.fork() == 0:\n    {source}{waiting}\nprint('parent')")
    assert (result.status, result.stdout) == (Status.SUCCESS, "parent\n")
