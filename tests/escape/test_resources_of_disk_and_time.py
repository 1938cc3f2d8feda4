"""Resources: disk, output and time.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| bytes on disk | tmpfs size | `disk-limits, rlimits` |
| sparse files | RLIMIT_FSIZE | `rlimits` |
| files, folders, links, attributes | tmpfs inode count | `disk-limits, rlimits` |
| output | counted by the host, which kills the run | `output-limit` |
| time, whatever the program does about signals | clock in the cell | `wall-time` |
| CPU time | RLIMIT_CPU | `rlimits` |
| endless recursion | the interpreter's own limit | `recursion-limit` |
| too many arguments | a command that cannot start says why | `failed-starts-told` |
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from textwrap import dedent

import pytest
from containers import LendSandbox

from escape.conftest import MakeSandbox
from escape.laboratory import ENDED, attack, program
from fumehood import AsyncSandbox, Cause, Status

pytestmark = pytest.mark.anyio

MIB = 1 << 20
DISK, INODES, OUTPUT = 8 * MIB, 300, 64 * 1024


@pytest.fixture
async def tight(lend_sandbox: LendSandbox) -> AsyncIterator[AsyncSandbox]:
    resources = {"disk": DISK, "inodes": INODES, "output": OUTPUT, "memory": "256M", "timeout": 20, "cpu_time": 5}
    async with lend_sandbox(resources=resources) as sandbox:
        yield sandbox


FILLING = {
    "the workspace": "fill('/workspace/evil')",
    "/tmp": "fill('/tmp/evil')",
    "/var/tmp": "fill('/var/tmp/evil')",
    "/dev/shm": "fill('/dev/shm/evil')",
    "/run": "fill('/run/evil')",
    "/tmp, /dev/shm and /run together": "fill('/tmp/evil') + fill('/dev/shm/evil') + fill('/run/evil')",
    "a file without a name": "fill(f'/proc/self/fd/{os.open(chr(46), os.O_TMPFILE | os.O_RDWR)}')",
    "space asked for beforehand": """sum(8192 for n in range(4096)
        if outcome(lambda: os.posix_fallocate(evil, n * 8192, 8192)) == 'GOT None')""",
    "holes that are filled": """sum(8192 for n in range(4096)
        if outcome(lambda: os.pwrite(evil, b'x' * 8192, n * 8192)) == 'GOT 8192')""",
    "attributes": """sum(4096 for n in range(8192)
        if outcome(lambda: os.setxattr('/workspace', f'user.evil{n}', bytes(4096))) == 'GOT None')""",
}


@pytest.mark.every_parameter
@pytest.mark.parametrize("code", FILLING.values(), ids=FILLING)
async def test_a_disk_cannot_be_overfilled_by(tight: AsyncSandbox, code: str) -> None:
    tools = """
        def fill(path):
            written = 0
            with open(path, "wb", buffering=0) as stream:
                while written < 32 << 20 and outcome(lambda: stream.write(bytes(65536))) == "GOT 65536":
                    written += 65536
            return written

        evil = os.open("evil", os.O_CREAT | os.O_RDWR)
    """
    assert await attack(tight, f"{tools}\n        found = {code}") <= DISK


@pytest.mark.parametrize("size", [DISK + 1, 1 << 40], ids=["just too large", "a terabyte"])
async def test_a_sparse_file_has_a_size_limit(tight: AsyncSandbox, size: int) -> None:
    code = "open('evil', 'w').close(); found = outcome(lambda: os.truncate('evil', size))"
    assert await attack(tight, code, size=size) == "EFBIG"


COUNTLESS = {
    "files": "open(f'/workspace/{n}', 'w').close()",
    "files in /tmp": "open(f'/tmp/{n}', 'w').close()",
    "folders": "os.mkdir(f'/workspace/{n}')",
    "folders in folders": "os.mkdir('deeper') or os.chdir('deeper')",
    "symbolic links": "os.symlink('x' * 4000, f'/workspace/{n}')",
    "hard links": "(open('/workspace/one', 'w').close(), os.link('/workspace/one', f'/workspace/{n}'))",
    "pipes": "os.mkfifo(f'/workspace/{n}')",
    "sockets": "socket.socket(socket.AF_UNIX).bind(f'/workspace/{n}')",
    "long names": "open(f'/workspace/{n:0>255}', 'w').close()",
}


@pytest.mark.parametrize("code", COUNTLESS.values(), ids=COUNTLESS)
async def test_there_cannot_be_countless(tight: AsyncSandbox, code: str) -> None:
    loop = "found = next((n for n in range(1000) if not outcome(lambda: {code}).startswith('GOT')), 1000)"
    assert await attack(tight, loop.format(code=code)) <= INODES


async def test_a_full_disk_is_named_as_what_it_is(tight: AsyncSandbox) -> None:
    result = await tight.run("with open('evil', 'wb') as stream:\n  for _ in range(32): stream.write(bytes(1 << 20))")
    assert (result.status, result.cause) == (Status.RESOURCE_EXCEEDED, Cause.DISK)


FLOODS = {
    "lines": "[print('x' * 79) for _ in range(4096)]",
    "one endless line": "[os.write(1, b'x' * 4096) for _ in range(64)]",
    "errors": "[os.write(2, b'x' * 4096) for _ in range(64)]",
    "both streams": "[os.write(n, b'x' * 4096) for _ in range(32) for n in (1, 2)]",
    "single bytes": "[os.write(1, b'x') for _ in range(100000)]",
    "many processes": "[os.write(1, b'x' * 4096) for _ in range(16) for n in (os.fork(), os.fork())]",
    "the error of an exception": "(_ for _ in ()).throw(ValueError('x' * 200000))",
}


@pytest.mark.parametrize("code", FLOODS.values(), ids=FLOODS)
async def test_output_cannot_flood_the_host_by(tight: AsyncSandbox, code: str) -> None:
    result = await tight.run(program(f"found = {code} and 0"))
    assert (result.status, result.cause, result.truncated) == (Status.RESOURCE_EXCEEDED, Cause.OUTPUT, True)
    assert len(result.stdout_bytes) + len(result.stderr_bytes) <= OUTPUT


STAYING = {
    "a busy loop": "while True: pass",
    "a busy loop in many processes": "os.fork(), os.fork()\nwhile True: pass",
    "ignored signals": """
        for number in range(1, 32):
            if number not in (9, 19):
                signal.signal(number, signal.SIG_IGN)
        while True:
            signal.pause()
    """,
    "blocked signals": """
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
        while True:
            signal.sigwait([signal.SIGUSR1])
    """,
    "being stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
    "a thread that sleeps": """
        import threading
        threading.Thread(target=threading.Event().wait).start()
    """,
    "a pattern that backtracks": "import re; re.match('(a+)+$', 'a' * 64 + 'b')",
    "closed streams": "os.close(0), os.close(1), os.close(2), signal.pause()",
    "waiting for oneself in exit handlers": "import atexit, threading; atexit.register(threading.Event().wait)",
    "waiting in the last destructor": """
        import threading

        class Stubborn:
            def __del__(self, wait=threading.Event().wait):
                wait()

        last = Stubborn()
    """,
    "waiting for a child that was cloned away": "os.fork() or signal.pause()\nos.wait()",
    "a pipe to oneself": "os.read(os.pipe()[0], 1)",
    "a number that takes forever": "3 ** 10 ** 9",
}


@pytest.mark.parametrize("code", STAYING.values(), ids=STAYING)
async def test_time_ends_also_for_a_program_with(sandbox: AsyncSandbox, code: str) -> None:
    result = await sandbox.run(program(f"print({ENDED!r}, flush=True)\nfound = 0\n{dedent(code)}"), timeout=0.5)
    assert result.stdout.startswith(ENDED), "it never started"
    assert (result.status, result.cause) == (Status.TIMEOUT, Cause.WALL_TIME)


async def test_cpu_time_runs_out_also_when_the_signal_is_ignored(make_sandbox: MakeSandbox) -> None:
    async with make_sandbox(resources={"cpu_time": 1, "timeout": 60}) as sandbox:
        result = await sandbox.run("import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass")
    assert (result.status, result.cause) == (Status.TIMEOUT, Cause.CPU_TIME)


async def test_too_many_arguments_are_an_error_of_the_command(sandbox: AsyncSandbox) -> None:
    result = await sandbox.run(argv=["true", *["x" * 100_000] * 40])
    assert (result.status, result.cause, result.exit_code) == (Status.ERROR, Cause.EXIT, 126)


async def test_endless_recursion_ends_the_program_alone(sandbox: AsyncSandbox) -> None:
    result = await sandbox.run("def deeper(): deeper()\ndeeper()")
    assert (result.status, result.exit_code) == (Status.ERROR, 1)
    assert "RecursionError" in result.stderr
