"""Nothing outlives its owner: hosts that are killed, cells that are killed, runs that are cancelled or left."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from live.hosts import FORKING, ONE_RUN, TWENTY_RUNS, open_host, run_host
from live.traces import (
    Footprint,
    cells_of,
    cgroups_of,
    children_of,
    descendants,
    is_alive,
    mounts,
    run_cgroups_of,
    wait_until,
)

from fumehood import AsyncSandbox, Cause, Finished, Policy, Sandbox, SandboxError, Status, Stdout

WAIT = "import threading\nimport os; os.write(1, b'up\\n')\nthreading.Event().wait()"


@pytest.mark.serial
def test_a_host_that_is_killed_takes_its_twenty_runs_along() -> None:
    mounted = mounts()
    with open_host(TWENTY_RUNS) as host:
        assert host.stdout is not None
        for _ in range(20):
            host.stdout.readline()
        processes = descendants(host.pid)
        assert len(processes) >= 20 * 3
        had_cgroups = bool(cgroups_of(host.pid))
        host.kill()
        host.wait()
        wait_until(lambda: not any(map(is_alive, processes)), 2.0, "every process of the killed host is gone")
    assert mounts() == mounted
    if had_cgroups:
        assert run_host(ONE_RUN) == "42\n"
    assert cgroups_of(host.pid) == []


@pytest.mark.serial
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_a_host_that_is_ended_by_a_signal_takes_its_runs_along(signum: signal.Signals) -> None:
    with open_host(TWENTY_RUNS) as host:
        assert host.stdout is not None
        for _ in range(20):
            host.stdout.readline()
        processes = descendants(host.pid)
        host.send_signal(signum)
        host.wait(20)
        wait_until(lambda: not any(map(is_alive, processes)), 2.0, "every process of the ended host is gone")


def test_the_cells_of_a_killed_host_die_although_its_forked_child_lives_on() -> None:
    with open_host(FORKING) as host:
        assert host.stdout is not None
        child = int(host.stdout.readline())
        processes = descendants(host.pid) - {child}
        assert processes
        try:
            host.kill()
            host.wait()
            wait_until(lambda: not any(map(is_alive, processes)), 2.0, "the killed host's cells are gone")
            assert is_alive(child)
        finally:
            os.kill(child, signal.SIGKILL)


def test_an_ordinary_end_leaves_nothing() -> None:
    program = "import os, fumehood\nprint(os.getpid(), fumehood.run('print(42)').stdout)"
    host = int(run_host(program).split()[0])
    wait_until(lambda: not cgroups_of(host), 2.0, "its cgroups are gone")


def test_a_host_that_never_closes_its_sandbox_ends_without_complaint() -> None:
    program = "import fumehood\nbox = fumehood.Sandbox().__enter__()\nprint(box.run('print(1)').stdout)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n\n", "")


async def _run_until_refused(box: AsyncSandbox) -> None:
    """A run is lost while the end of its cell is not known here yet."""
    with anyio.fail_after(5):
        while True:
            assert (await box.run("print('gone')")).cause is Cause.LOST


@pytest.mark.anyio
async def test_cells_that_are_killed_end_their_runs_as_lost_and_new_sandboxes_work() -> None:
    policy = Policy(resources={"memory": "211M"})
    before = set(cells_of(os.getpid()))
    async with AsyncSandbox(policy) as box:
        stream = box.stream(WAIT)
        assert await anext(stream) == Stdout(b"up\n")
        (cell,) = set(cells_of(os.getpid())) - before
        for process in descendants(cell) & set(children_of(cell)):
            os.kill(process, signal.SIGKILL)
        events = [event async for event in stream]
        assert isinstance(events[-1], Finished)
        assert (events[-1].result.status, events[-1].result.cause) == (Status.ERROR, Cause.LOST)
        with pytest.raises(SandboxError, match="open a new one"):
            await _run_until_refused(box)
    async with AsyncSandbox(policy) as box:
        assert (await box.run("print('new')")).stdout == "new\n"


@pytest.mark.anyio
async def test_the_outer_process_of_a_cell_is_killed() -> None:
    policy = Policy(resources={"memory": "212M"})
    before = set(cells_of(os.getpid()))
    async with AsyncSandbox(policy) as box:
        stream = box.stream(WAIT)
        await anext(stream)
        (cell,) = set(cells_of(os.getpid())) - before
        os.kill(cell, signal.SIGKILL)
        events = [event async for event in stream]
        assert isinstance(events[-1], Finished)
        assert events[-1].result.cause is Cause.LOST
    async with AsyncSandbox(policy) as box:
        assert (await box.run("print('new')")).stdout == "new\n"


@pytest.mark.anyio
async def test_the_process_that_runs_are_copies_of_is_killed() -> None:
    policy = Policy(resources={"memory": "214M"})
    before = set(cells_of(os.getpid()))
    async with AsyncSandbox(policy) as box:
        stream = box.stream(WAIT)
        await anext(stream)
        (outer,) = set(cells_of(os.getpid())) - before
        (cell,) = children_of(outer)
        (template,) = children_of(cell)
        processes = descendants(cell)
        os.kill(template, signal.SIGKILL)
        events = [event async for event in stream]
        assert isinstance(events[-1], Finished)
        assert events[-1].result.cause is Cause.LOST
        wait_until(lambda: not any(map(is_alive, processes)), 2.0, "every process of the cell is gone")
    async with AsyncSandbox(policy) as box:
        assert (await box.run("print('new')")).stdout == "new\n"


@pytest.mark.anyio
async def test_a_sandbox_that_was_not_used_yet_moves_to_a_new_cell() -> None:
    policy = Policy(resources={"memory": "213M"})
    before = set(cells_of(os.getpid()))
    async with AsyncSandbox(policy) as box:
        (cell,) = set(cells_of(os.getpid())) - before
        os.kill(cell, signal.SIGKILL)
        wait_until(lambda: not is_alive(cell), 2.0, "the cell is gone")
        assert (await box.run("print('moved')")).stdout == "moved\n"


@pytest.mark.serial
@pytest.mark.anyio
async def test_runs_cancelled_at_random_moments_leave_nothing() -> None:
    dice = random.Random(20)
    async with AsyncSandbox() as box:
        for _ in range(5):
            await box.run("pass")
        before = Footprint.at_rest()
        for _ in range(50):
            with anyio.move_on_after(dice.uniform(0, 0.03)):
                await box.run(
                    "import os, subprocess\nsubprocess.Popen(['sleep', '100'])\nos.fork()\nwhile True: print('x')"
                )
        assert (await box.run("print('on')")).stdout == "on\n"
        before.wait_until_it_is_so_again(5.0)


@pytest.mark.serial
@pytest.mark.anyio
async def test_opening_cancelled_at_random_moments_leaves_nothing() -> None:
    dice = random.Random(21)
    async with AsyncSandbox() as box:
        await box.run("pass")
        before = Footprint.at_rest()
        for n in range(6):
            with anyio.move_on_after(dice.uniform(0, 0.2)):
                async with AsyncSandbox(Policy(resources={"memory": f"{300 + n}M"})) as other:
                    await other.run("while True: pass")
        assert (await box.run("print('on')")).stdout == "on\n"
        extra = len(set(cells_of(os.getpid()))) - 1
        assert extra <= 6 + before.processes  # warm cells may stay, one for each policy
        assert len(run_cgroups_of(os.getpid())) <= 3 * 4 * (extra + 1)


@pytest.mark.anyio
async def test_cancellation_propagates_and_is_never_a_result() -> None:
    async with AsyncSandbox() as box:
        with anyio.CancelScope() as scope:
            async for _ in box.stream(WAIT):
                scope.cancel()
            pytest.fail("the run ended by itself")
        assert scope.cancelled_caught
        with pytest.raises(TimeoutError):
            with anyio.fail_after(0.1):
                await box.run("while True: pass")


@pytest.mark.anyio
async def test_closing_a_sandbox_ends_the_runs_in_it() -> None:
    box = await AsyncSandbox().__aenter__()
    stream = box.stream(WAIT)
    assert await anext(stream) == Stdout(b"up\n")
    await box.__aexit__(None, None, None)
    with anyio.fail_after(5):
        events = [event async for event in stream]
    assert isinstance(events[-1], Finished)
    assert events[-1].result.status is Status.CANCELLED


@pytest.mark.anyio
async def test_closing_a_sandbox_with_a_run_in_it_does_no_harm_to_another_sandbox() -> None:
    """Both are in the same cell, as sandboxes with the same policy are."""
    async with AsyncSandbox() as other:
        stream = other.stream(
            "import os; os.write(1, b'up\\n')\nos.write(1, input().encode() + b'\\n')", stdin=(pipe := os.pipe())[0]
        )
        assert await anext(stream) == Stdout(b"up\n")
        box = await AsyncSandbox().__aenter__()
        left = box.stream(WAIT)
        await anext(left)
        await box.__aexit__(None, None, None)
        await left.aclose()
        os.write(pipe[1], b"still here\n")
        events = [event async for event in stream]
        assert events[0] == Stdout(b"still here\n")
        assert (await other.run("print('on')")).stdout == "on\n"
    for descriptor in pipe:
        os.close(descriptor)


@pytest.mark.anyio
async def test_a_stream_that_is_dropped_without_closing_ends_its_run() -> None:
    async with AsyncSandbox(Policy(resources={"memory": "214M"})) as box:
        await box.run("pass")
        stream = box.stream(
            "import os, threading\nos.write(1, b'up\\n')\nos.closerange(0, 3)\nthreading.Event().wait()"
        )
        await anext(stream)
        before = descendants(os.getpid())
        del stream
        gc.collect()
        await anyio.to_thread.run_sync(
            wait_until, lambda: before - descendants(os.getpid()), 5.0, "processes of the dropped run are gone"
        )


def test_a_blocking_sandbox_closed_by_one_thread_while_another_runs_in_it() -> None:
    import threading

    outcome: list[object] = []

    def work() -> None:
        try:
            for event in box.stream(WAIT):
                started.set()
                outcome.append(event)
        except Exception as error:
            outcome.append(error)

    started = threading.Event()
    with Sandbox() as box:
        thread = threading.Thread(target=work)
        thread.start()
        assert started.wait(10)
    thread.join(10)
    assert not thread.is_alive()


def test_process_1_of_a_run_holds_no_descriptor() -> None:
    """Nobody inside can reach it; if somebody could, there would be nothing to find."""
    with Sandbox() as box:
        run = box.start("input()")
        reapers = [pid for pid in descendants(os.getpid()) if Path(f"/proc/{pid}/comm").read_text() == "reaper\n"]
        assert len(reapers) >= 1
        for reaper in reapers:
            if os.geteuid() == 0:
                assert os.listdir(f"/proc/{reaper}/fd") == []
            else:
                with pytest.raises(PermissionError):
                    os.listdir(f"/proc/{reaper}/fd")
        run.kill()
