"""A sandbox is opened, used and closed; its runs share a workspace and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest
from containers import LendSandbox

import fumehood
from fumehood import AsyncSandbox, Policy, RunResult, Sandbox, Status, UsageError

LEAVE_THINGS = """
import os, pathlib, signal, socket, sys
for place in ("/tmp/x", "/var/tmp/y", "/dev/shm/x", "/run/x"):
    pathlib.Path(place).write_text("left")
import json
json.left = 1
os.environ["LEFT"] = "1"
os.umask(0)
if os.fork() == 0:
    signal.pause()
"""
LOOK_FOR_THINGS = """
import json, os
places = ("/tmp/x", "/var/tmp/y", "/dev/shm/x", "/run/x")
print([p for p in places if os.path.exists(p)], hasattr(json, "left"), "LEFT" in os.environ)
print(oct(os.umask(0)), [int(n) for n in os.listdir("/proc") if n.isdigit() and n != "1"] == [os.getpid()])
"""


def test_the_workspace_is_shared_by_the_runs_of_a_sandbox(box: Sandbox) -> None:
    box.run("open('file', 'w').write('kept')")
    assert box.run("print(open('file').read())").stdout == "kept\n"
    assert box.run(argv=["cat", "/workspace/file"]).stdout == "kept"
    box.run("import os; os.remove('file')")
    assert box.run("import os; print(os.listdir())").stdout == "[]\n"


def test_the_workspace_of_another_sandbox_is_another(lend_box: Callable[..., Sandbox]) -> None:
    first, second = lend_box(), lend_box()
    first.run("open('file', 'w')")
    assert second.run("import os; print(os.listdir())").stdout == "[]\n"


def test_a_sandbox_that_is_opened_again_starts_afresh(make_policy: Callable[..., Policy]) -> None:
    policy = make_policy()
    for _ in range(3):
        with Sandbox(policy) as box:
            assert box.run("import os; print(os.listdir()); open('file', 'w')").stdout == "[]\n"


def test_nothing_but_the_workspace_is_shared(box: Sandbox) -> None:
    assert box.run(LEAVE_THINGS).ok
    assert box.run(LOOK_FOR_THINGS).stdout == "[] False False\n0o22 True\n"


@pytest.mark.one_container
def test_run_is_a_sandbox_of_its_own(backend: str) -> None:
    policy = Policy(backend=backend)
    assert fumehood.run("print(6 * 7)", policy).stdout == "42\n"
    assert fumehood.run("open('x', 'w')", policy).ok
    assert fumehood.run("import os; print(os.listdir())", policy).stdout == "[]\n"
    assert fumehood.run(argv=["echo", "hi"], policy=policy).stdout == "hi\n"


@pytest.mark.anyio
async def test_two_runs_of_one_sandbox_at_once_can_meet(shared_box: LendSandbox) -> None:
    """Each needs the other to finish, so both run at the same time; what they share is a pipe in the workspace."""
    results: dict[str, RunResult] = {}

    async def run(name: str, source: str) -> None:
        results[name] = await box.run(source)

    async with shared_box() as box:
        assert (await box.run("import os; os.mkfifo('a'); os.mkfifo('b')")).ok
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, "first", "open('a', 'w').write('ping'); print(open('b').read())")
            tasks.start_soon(run, "second", "print(open('a').read()); open('b', 'w').write('pong')")
    assert (results["first"].stdout, results["second"].stdout) == ("pong\n", "ping\n")


@pytest.mark.anyio
async def test_a_limit_on_processes_is_each_runs_own(make_policy: Callable[..., Policy]) -> None:
    """Six runs at once, each with as many processes as the policy allows but one."""
    source = (
        "import os, signal, time\nfor _ in range(4):\n    if os.fork() == 0: signal.pause()\n"
        "open(f'here-{os.urandom(8).hex()}', 'w')\n"
        "while sum(n.startswith('here-') for n in os.listdir()) < 6: time.sleep(0.01)\nprint('all here')"
    )
    results: list[RunResult] = []

    async def run() -> None:
        results.append(await box.run(source, timeout=60))

    policy = make_policy(resources={"processes": 6, "timeout": "1m"})
    async with AsyncSandbox(policy) as box, anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(run)
    assert [(result.stdout, result.stderr) for result in results] == [("all here\n", "")] * 6


@pytest.mark.one_container
@pytest.mark.anyio
async def test_a_sandbox_that_is_not_open_says_so(make_policy: Callable[..., Policy]) -> None:
    box = AsyncSandbox(make_policy())
    with pytest.raises(UsageError, match="not open"):
        await box.run("pass")
    with pytest.raises(UsageError, match="not open"):
        await anext(box.stream("pass"))
    with pytest.raises(UsageError, match="not open"):
        _ = box.enforcement
    async with box:
        assert (await box.run("pass")).ok
    with pytest.raises(UsageError, match="not open"):
        await box.run("pass")


@pytest.mark.one_container
def test_a_blocking_sandbox_that_is_not_open_says_so(make_policy: Callable[..., Policy]) -> None:
    box = Sandbox(make_policy())
    with pytest.raises(UsageError, match="not open"):
        box.run("pass")
    with pytest.raises(UsageError, match="not open"):
        next(iter(box.stream("pass")))
    with pytest.raises(UsageError, match="not open"):
        _ = box.enforcement


@pytest.mark.one_container
def test_a_blocking_sandbox_that_was_closed_says_so(make_policy: Callable[..., Policy]) -> None:
    with Sandbox(make_policy()) as box:
        assert box.run("pass").ok
    with pytest.raises(UsageError, match="not open"):
        box.run("pass")


@pytest.mark.one_container
@pytest.mark.anyio
async def test_a_sandbox_cannot_be_opened_twice(make_policy: Callable[..., Policy]) -> None:
    async with AsyncSandbox(make_policy()) as box:
        with pytest.raises(UsageError, match="open already"):
            await box.__aenter__()
        assert (await box.run("print('on')")).stdout == "on\n"


@pytest.mark.one_container
def test_a_blocking_sandbox_cannot_be_opened_twice(make_policy: Callable[..., Policy]) -> None:
    with Sandbox(make_policy()) as box:
        with pytest.raises(UsageError, match="open already"), box:
            pass
        assert box.run("print('on')").stdout == "on\n"


@pytest.mark.one_container
@pytest.mark.anyio
async def test_an_exception_in_the_block_closes_the_sandbox_and_propagates(make_policy: Callable[..., Policy]) -> None:
    box = AsyncSandbox(make_policy())
    with pytest.raises(ZeroDivisionError):
        async with box:
            raise ZeroDivisionError
    with pytest.raises(UsageError, match="not open"):
        await box.run("pass")


@pytest.mark.one_container
def test_the_blocking_sandbox_works_from_many_threads(box: Sandbox) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        outputs = pool.map(lambda n: box.run(f"print({n} * {n})").stdout, range(40))
    assert list(outputs) == [f"{n * n}\n" for n in range(40)]


@pytest.mark.one_container
@pytest.mark.anyio
async def test_the_blocking_sandbox_works_inside_an_event_loop(make_policy: Callable[..., Policy]) -> None:
    with Sandbox(make_policy()) as box:
        assert box.run("print(1)").status is Status.SUCCESS
