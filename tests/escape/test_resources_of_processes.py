"""Resources: processes and descriptors. Every attack stops by itself a little past its limit, limit or no limit.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| processes and threads | pids cgroup, RLIMIT_NPROC | `cgroups, rlimits` |
| survivors | process namespace, whose end the supervisor waits for | `process-namespace` |
| open files | RLIMIT_NOFILE | `rlimits` |
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from containers import LendSandbox

from escape.laboratory import attack
from fumehood import AsyncSandbox, Cause, Status

pytestmark = pytest.mark.anyio

PROCESSES, FILES = 12, 64


@pytest.fixture
async def tight(lend_sandbox: LendSandbox) -> AsyncIterator[AsyncSandbox]:
    async with lend_sandbox(resources={"processes": PROCESSES, "open_files": FILES, "timeout": 20}) as sandbox:
        yield sandbox


MULTIPLYING = {
    "forks": """
        found = 0
        for _ in range(40):
            try:
                child = os.fork()
            except BlockingIOError:
                break
            if child == 0:
                signal.pause()
            found += 1
    """,
    "forks that nobody waits for": """
        found = 0
        for _ in range(40):
            try:
                child = os.fork()
            except BlockingIOError:
                break
            if child == 0:
                os._exit(0)
            found += 1
    """,
    "threads": """
        import threading
        found, stop = 0, threading.Event()
        for _ in range(40):
            try:
                threading.Thread(target=stop.wait, daemon=True).start()
            except RuntimeError:
                break
            found += 1
    """,
    "orphans": """
        found = 0
        for _ in range(40):
            ready, told = os.pipe()
            try:
                child = os.fork()
            except BlockingIOError:
                break
            if child == 0:
                try:
                    if os.fork() == 0:
                        os.setsid()
                        os.write(told, b"x")
                        signal.pause()
                except BlockingIOError:
                    os.write(told, b"-")
                os._exit(0)
            os.waitpid(child, 0)
            found += os.read(ready, 1) == b"x"
            os.close(ready)
            os.close(told)
    """,
}


@pytest.mark.every_parameter
@pytest.mark.parametrize("code", MULTIPLYING.values(), ids=MULTIPLYING)
async def test_a_program_cannot_multiply_by(tight: AsyncSandbox, code: str) -> None:
    assert await attack(tight, code) <= PROCESSES


async def test_a_fork_bomb_is_named_as_what_it_is(tight: AsyncSandbox) -> None:
    # Each of them goes on until it is refused, the first one too, whose end is the run's.
    result = await tight.run("import os\nwhile True: os.fork()")
    assert (result.status, result.cause) == (Status.RESOURCE_EXCEEDED, Cause.PROCESSES)


SURVIVING = {
    "a daemon": "os.setsid()",
    "a daemon that ignores signals": "[signal.signal(n, signal.SIG_IGN) for n in range(1, 32) if n not in (9, 19)]",
    "a stopped process": "os.write(ready[1], b'x'), os.kill(os.getpid(), signal.SIGSTOP)",
    "a child of process 1": "os.getppid()",
}


@pytest.mark.every_parameter
@pytest.mark.parametrize("code", SURVIVING.values(), ids=SURVIVING)
async def test_nothing_survives_its_run(sandbox: AsyncSandbox, code: str) -> None:
    name = f"hood{secrets.token_hex(4)}"
    await attack(
        sandbox,
        f"""
        ready = os.pipe()
        if os.fork() == 0:
            if os.fork() == 0:
                libc.prctl(15, name.encode(), 0, 0, 0)
                {code}
                os.write(ready[1], b"x")
                while True:
                    signal.pause()
            os._exit(0)
        found = os.read(ready[0], 1).decode()
        """,
        name=name,
    )
    assert name not in process_names()


async def test_no_answer_comes_before_the_last_process_has_ended(sandbox: AsyncSandbox) -> None:
    """Many, with memory of their own: they need a while to end, and a result that is early is seen to be."""
    name = f"hood{secrets.token_hex(4)}"
    await attack(
        sandbox,
        """
        ready = os.pipe()
        for _ in range(25):
            if os.fork() == 0:
                libc.prctl(15, name.encode(), 0, 0, 0)
                pages = bytearray(1 << 21)
                os.write(ready[1], b"x")
                while True:
                    signal.pause()
            os.read(ready[0], 1)
        found = 42
        """,
        name=name,
    )
    assert name not in process_names()


def process_names() -> set[str]:
    names = set()
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            names.add(path.read_text().strip())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return names


async def test_open_files_are_counted(tight: AsyncSandbox) -> None:
    code = """
        found, held = 0, []
        while found < 2 * 64 and outcome(lambda: held.append(os.dup(0))) == "GOT None":
            found += 1
    """
    assert await attack(tight, code) <= FILES - 3
