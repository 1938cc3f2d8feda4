"""One process, many of everything: event loops, threads, policies, forks, runs at once."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
import sampling
from live.hosts import run_host
from live.traces import cells_of, is_alive, wait_until

import fumehood
from fumehood import AsyncSandbox, Policy, RunResult, Sandbox, Status, Stdout

LOOPS = ["asyncio", *(["trio"] if importlib.util.find_spec("trio") else [])]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_sandbox_works_on_any_event_loop(loop: str) -> None:
    async def main() -> None:
        async with AsyncSandbox() as box:
            assert (await box.run("print(6 * 7)")).stdout == "42\n"
            events = [event async for event in box.stream("import os; os.write(1, b'1')")]
            assert events[0] == Stdout(b"1")
            with anyio.move_on_after(0.1) as scope:
                await box.run("while True: pass")
            assert scope.cancelled_caught

    anyio.run(main, backend=loop)


def test_one_event_loop_after_another_shares_warm_cells() -> None:
    """The thread and the loop that started a cell are gone, and the cell is not."""
    policy = Policy(resources={"memory": "221M"})

    async def main() -> str:
        async with AsyncSandbox(policy) as box:
            return (await box.run("print('on')")).stdout

    before = set(cells_of(os.getpid()))
    assert anyio.run(main) == "on\n"
    started = set(cells_of(os.getpid())) - before
    assert [anyio.run(main) for _ in range(5)] == ["on\n"] * 5
    assert set(cells_of(os.getpid())) - before == started


def test_a_cell_outlives_the_thread_that_started_it() -> None:
    policy = Policy(resources={"memory": "222M"})
    before = set(cells_of(os.getpid()))
    thread = threading.Thread(target=lambda: fumehood.run("pass", policy))
    thread.start()
    thread.join()
    (cell,) = set(cells_of(os.getpid())) - before
    assert fumehood.run("print('on')", policy).stdout == "on\n"
    assert is_alive(cell)


def test_event_loops_in_many_threads_work_at_once() -> None:
    def one(number: int) -> list[str]:
        async def main() -> list[str]:
            policy = Policy(resources={"memory": f"{223 + number % 3}M"})
            async with AsyncSandbox(policy) as box:
                return [(await box.run(f"print({number}, {n})")).stdout for n in range(5)]

        return asyncio.run(main())

    with ThreadPoolExecutor(12) as pool:
        outputs = list(pool.map(one, range(12)))
    assert outputs == [[f"{number} {n}\n" for n in range(5)] for number in range(12)]


@pytest.mark.anyio
async def test_sandboxes_of_many_policies_work_at_once() -> None:
    outputs: dict[int, str] = {}

    async def one(number: int) -> None:
        policy = Policy(resources={"open_files": 40 + number})
        async with AsyncSandbox(policy) as box:
            source = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
            outputs[number] = (await box.run(source)).stdout

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(one, number)
    assert outputs == {number: f"{40 + number}\n" for number in range(8)}


@pytest.mark.anyio
async def test_a_policy_that_many_open_at_once_gets_one_cell() -> None:
    policy = Policy(resources={"memory": "231M"})
    before = set(cells_of(os.getpid()))

    async def one() -> None:
        async with AsyncSandbox(policy) as box:
            assert (await box.run("print(1)")).ok

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(one)
    assert len(set(cells_of(os.getpid())) - before) == 1


@pytest.mark.anyio
async def test_two_hundred_runs_at_once_finish() -> None:
    results: dict[int, RunResult] = {}

    async def one(number: int) -> None:
        results[number] = await box.run(f"import os\nprint({number}, len(os.listdir('/proc/self/fd')))")

    async with AsyncSandbox() as box, anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(one, number)
    assert {result.status for result in results.values()} == {Status.SUCCESS}
    assert [results[number].stdout.split()[0] for number in range(200)] == [str(number) for number in range(200)]
    assert len({result.stdout.split()[1] for result in results.values()}) == 1


@pytest.mark.anyio
async def test_two_hundred_runs_that_all_stay_for_a_while_finish() -> None:
    """Nobody leaves before all are there, so all two hundred live at the same moment."""
    source = (
        "import os, time\nopen(f'here-{os.urandom(8).hex()}', 'w')\n"
        "while sum(n.startswith('here-') for n in os.listdir()) < 200: time.sleep(0.2)\nprint('all')"
    )
    outputs: list[str] = []

    async def one() -> None:
        result = await box.run(source)
        outputs.append(result.stdout or result.stderr or result.detail)

    policy = Policy(resources={"timeout": "60s"})
    async with AsyncSandbox(policy) as box, anyio.create_task_group() as tasks:
        for _ in range(200):
            tasks.start_soon(one)
    assert outputs == ["all\n"] * 200


@pytest.mark.anyio
async def test_runs_that_wait_for_their_turn_do_not_lose_their_time() -> None:
    """So many at once take longer to start than the time limit of each and any grace period after it."""
    count = sampling.amount(300, whole=800)
    results: list[RunResult] = []

    async def one() -> None:
        results.append(await box.run("pass", timeout=0.2))

    async with AsyncSandbox() as box, anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(one)
    assert len(results) == count
    assert {result.status for result in results} <= {Status.SUCCESS, Status.TIMEOUT}


def test_the_blocking_sandbox_works_inside_a_running_loop_with_threads_around() -> None:
    """An application as they are: a loop, a pool of threads, blocking calls from all of them."""

    async def main() -> list[str]:
        def work(number: int) -> str:
            with Sandbox() as box:
                return box.run(f"print({number})").stdout

        inline = fumehood.run("print('inline')").stdout
        threads = [await anyio.to_thread.run_sync(work, n) for n in range(5)]
        return [inline, *threads]

    stop = threading.Event()
    idle = [threading.Thread(target=stop.wait) for _ in range(50)]
    for thread in idle:
        thread.start()
    try:
        assert asyncio.run(main()) == ["inline\n", *(f"{n}\n" for n in range(5))]
    finally:
        stop.set()
        for thread in idle:
            thread.join()


FORK_AND_USE = """
import multiprocessing, fumehood
def work(queue):
    queue.put(fumehood.run("print('child')").stdout)
    with fumehood.Sandbox() as box:
        queue.put(box.run("print('again')").stdout)
if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    with fumehood.Sandbox() as box:
        box.run("open('file', 'w').write('kept')")
        queue = context.Queue()
        children = [context.Process(target=work, args=(queue,)) for _ in range(2)]
        for child in children: child.start()
        print(box.run("print('parent')").stdout, end="")
        answers = sorted(queue.get() for _ in range(4))
        for child in children: child.join()
        print("".join(answers), [child.exitcode for child in children])
        print(box.run("print(open('file').read())").stdout, end="")
    print(fumehood.run("print('end')").stdout, end="")
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_an_application_that_forks_while_a_sandbox_is_open(method: str, tmp_path: Path) -> None:
    script = tmp_path / "application.py"
    script.write_text(FORK_AND_USE.replace("{method}", method))
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("parent\nagain\nagain\nchild\nchild\n [0, 0]\nkept\nend\n", "")


@pytest.mark.parametrize("leaving", ["os._exit(3)", "sys.exit(3)"])
def test_a_forked_child_that_ends_leaves_the_parents_sandbox_alone(leaving: str) -> None:
    """`sys.exit` leaves the block in which the parent opened its sandbox; the child must neither wait nor close it."""
    program = (
        "import os, sys, fumehood\n"
        "with fumehood.Sandbox() as box:\n"
        '    box.run(\'open("file", "w")\')\n'
        "    child = os.fork()\n"
        f"    if child == 0: {leaving}\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "    print(box.run('import os; print(os.listdir())').stdout)\n"
    )
    assert run_host(program, seconds=10).split() == ["3", "['file']"]


def test_importing_and_opening_starts_no_child_of_the_application_but_cells() -> None:
    before = set(cells_of(os.getpid()))
    policy = Policy(resources={"memory": "232M"})
    with Sandbox(policy) as box:
        box.run("pass")
        assert len(set(cells_of(os.getpid())) - before) == 1
    wait_until(lambda: len(set(cells_of(os.getpid())) - before) <= 1, 2, "no further child")
