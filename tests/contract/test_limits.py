"""Every limit ends a program with its own status and cause, and the next run is none the worse for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fumehood import Cause, DeniedError, FumehoodError, Sandbox, Status, UsageError

IGNORE_EVERYTHING = (
    "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n"
    "    except (OSError, ValueError): pass\n"
)
ENDLESS = {
    "a loop": "while True: pass",
    "a sleep": "import time; time.sleep(1000)",
    "ignoring every signal": IGNORE_EVERYTHING + "while True: pass",
    "sleeping through every signal": IGNORE_EVERYTHING + "import time\nwhile True: time.sleep(1000)",
    "a stopped process": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "waiting for a child": "import os, signal\nif os.fork() == 0: signal.pause()\nos.wait()",
    "a thread that never ends": "import threading; threading.Thread(target=threading.Event().wait).start()",
    "an atexit handler": "import atexit, threading; atexit.register(threading.Event().wait)",
    "a finalizer": "class A:\n    def __del__(self):\n        while True: pass\na = A()",
    "a double-forked daemon": (
        "import os, signal\nif os.fork() == 0:\n    os.setsid()\n"
        "    if os.fork() == 0: signal.pause()\n    os._exit(0)\nsignal.pause()"
    ),
    "catching everything": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "compiling": "exec('(' * 50 + '1' + ')' * 50)\nwhile True: compile('x = 1', 'x', 'exec')",
}


@pytest.mark.parametrize("source", ENDLESS.values(), ids=ENDLESS.keys())
def test_a_program_that_does_not_end_is_out_of_time(box: Sandbox, source: str) -> None:
    result = box.run("print('started')\n" + source, timeout=0.5)
    assert (result.status, result.cause, result.exit_code) == (Status.TIMEOUT, Cause.WALL_TIME, 124)
    assert result.stdout == "started\n"
    assert "500ms" in result.detail
    assert box.run("print('on')").stdout == "on\n"


def test_a_command_that_does_not_end_is_out_of_time(box: Sandbox) -> None:
    assert box.run(argv=["sleep", "1000"], timeout=0.2).cause is Cause.WALL_TIME
    assert box.run("trap '' TERM INT; while :; do :; done", language="bash", timeout=0.2).cause is Cause.WALL_TIME


@pytest.mark.one_container
def test_a_program_that_is_out_of_time_as_it_begins_is_told_so_and_goes_no_further(box: Sandbox) -> None:
    """Its process may be anywhere on its way to the program."""
    source = "import time; time.sleep(0.05); open('late', 'w')"
    for step in range(20):
        assert box.run(source, timeout=0.001 + step * 0.0005).cause is Cause.WALL_TIME, step
    assert box.run("import os, time; time.sleep(0.2); print(os.path.exists('late'))").stdout == "False\n"


def test_the_policys_timeout_holds_without_another(open_box: Callable[..., Sandbox]) -> None:
    assert open_box(resources={"timeout": "300ms"}).run("while True: pass").cause is Cause.WALL_TIME


@pytest.mark.one_container
@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), -0.0])
def test_a_timeout_that_makes_no_sense_is_one_clear_error(box: Sandbox, timeout: float) -> None:
    with pytest.raises(UsageError, match="timeout"):
        box.run("pass", timeout=timeout)


@pytest.mark.one_container
def test_a_timeout_beyond_the_policys_is_denied(open_box: Callable[..., Sandbox]) -> None:
    box = open_box(resources={"timeout": "2s"})
    with pytest.raises(DeniedError, match=r"timeout 3s is more than the policy's resources\.timeout of 2s"):
        box.run("pass", timeout=3)
    assert box.run("pass", timeout=2).ok


@pytest.mark.parametrize(
    "source", ["while True: pass", "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"]
)
def test_cpu_time_has_a_limit_of_its_own(lend_box: Callable[..., Sandbox], source: str) -> None:
    result = lend_box(resources={"cpu_time": "1s"}).run(source)
    assert (result.status, result.cause, result.exit_code) == (Status.TIMEOUT, Cause.CPU_TIME, 124)
    assert "resources.cpu_time" in result.detail


def test_sleeping_takes_no_cpu_time(lend_box: Callable[..., Sandbox]) -> None:
    assert lend_box(resources={"cpu_time": "1s"}).run("import time; time.sleep(1.2)").ok


MEMORY = {
    "one allocation": "x = bytearray(1024 ** 3)",
    "growing slowly": "x = []\nwhile True: x.append(bytearray(1024 ** 2))",
    "a mapping": "import mmap\nm = mmap.mmap(-1, 1024 ** 3)\nfor n in range(0, 1024 ** 3, 4096): m[n] = 1",
    "a string": "x = 'x' * 1024 ** 3",
    "in a thread": "import threading\nx = []\ndef f():\n    while True: x.append(bytearray(1024 ** 2))\nf()",
}


@pytest.mark.every_parameter
@pytest.mark.parametrize("source", MEMORY.values(), ids=MEMORY.keys())
def test_a_program_that_needs_more_memory_than_it_may_is_told_so(lend_box: Callable[..., Sandbox], source: str) -> None:
    box = lend_box(resources={"memory": "128M"})
    result = box.run(source)
    assert (result.status, result.cause, result.exit_code) == (Status.RESOURCE_EXCEEDED, Cause.MEMORY, 137)
    assert "128M" in result.detail
    assert box.run("print('on')").stdout == "on\n"


def test_memory_below_the_limit_is_fine(lend_box: Callable[..., Sandbox]) -> None:
    assert lend_box(resources={"memory": "128M"}).run("x = bytearray(50 * 1024 ** 2)\nprint(len(x))").ok


def test_the_smallest_memory_limit_still_runs_or_says_why_not(open_box: Callable[..., Sandbox]) -> None:
    try:
        said = open_box(resources={"memory": "16M"}).run("print('fits')").stdout
    except FumehoodError as error:
        said = str(error)
    assert said == "fits\n" or "resources.memory" in said


PROCESSES = {
    "a fork bomb": "import os\nwhile True: os.fork()",
    "children that stay": "import os, signal\nwhile True:\n    if os.fork() == 0: signal.pause()",
    "a thread bomb": (
        "import threading\nwhile True: threading.Thread(target=threading.Event().wait, daemon=True).start()"
    ),
    "subprocesses": "import subprocess\nps = [subprocess.Popen(['sleep', '100']) for _ in range(100)]",
}


@pytest.mark.parametrize("source", PROCESSES.values(), ids=PROCESSES.keys())
def test_a_program_that_wants_more_processes_than_it_may_is_told_so(
    lend_box: Callable[..., Sandbox], source: str
) -> None:
    box = lend_box(resources={"processes": 20, "timeout": "20s"})
    result = box.run(source)
    assert (result.status, result.cause) == (Status.RESOURCE_EXCEEDED, Cause.PROCESSES)
    assert "20 processes" in result.detail
    assert box.run("print('on')").stdout == "on\n"


def test_a_shell_that_wants_more_processes_than_it_may_is_told_so(open_box: Callable[..., Sandbox]) -> None:
    """It ends with an error of its own, as any program may; the kernel knows what it was refused."""
    line = "for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do sleep 20 & done; wait"
    result = open_box(resources={"processes": 10}).run(line, language="sh")
    assert (result.status, result.cause) == (Status.RESOURCE_EXCEEDED, Cause.PROCESSES)


def test_processes_below_the_limit_are_fine(lend_box: Callable[..., Sandbox]) -> None:
    source = (
        "import os\nchildren = [os.fork() for _ in range(3)]\n"
        "if 0 in children: os._exit(0)\n[os.wait() for _ in children]\nprint('all')"
    )
    assert lend_box(resources={"processes": 20, "timeout": "20s"}).run(source).stdout == "all\n"


@pytest.mark.parametrize("processes", [1, 2])
def test_a_failure_below_the_limit_on_processes_is_a_plain_one(
    open_box: Callable[..., Sandbox], processes: int
) -> None:
    box = open_box(resources={"processes": processes})
    leave_one = "import os, signal\nif os.fork() == 0: signal.pause()\n" if processes == 2 else ""
    result = box.run(leave_one + "import sys; sys.exit(3)")
    assert (result.status, result.cause, result.exit_code) == (Status.ERROR, Cause.EXIT, 3)


def test_open_files_have_a_limit(open_box: Callable[..., Sandbox]) -> None:
    result = open_box(resources={"open_files": 32}).run("fs = [open('/dev/null') for _ in range(64)]")
    assert (result.status, "Too many open files" in result.stderr) == (Status.ERROR, True)
