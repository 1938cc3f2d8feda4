"""A guest that is stopped from outside does not answer and ends nothing: the host has a clock of its own."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import anyio.lowlevel
import engine
import pytest
from live.traces import cells_of, children_of, containers, wait_until
from requirements import require

from fumehood import AsyncSandbox, Cause, Policy, SandboxError, Status, Stdout

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

# Far below what it took to notice without a clock, far above the second that it takes.
SECONDS = 20
WAIT = "import signal\nprint('up', flush=True)\nsignal.pause()"
BACKENDS = ["native", *(engine.BACKENDS if os.geteuid() == 0 else ())]
_unused_limits = itertools.count(30_000)

# How long the event loop of the application may stand still for a guest, on a machine that is busy.
MOST_PAUSE_SECONDS = 2

Stop = Callable[[], None]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    if request.param in engine.BACKENDS:
        require(engine.missing() is None, engine.missing() or "")
        engine.use()
    return request.param


@pytest.fixture
def limit() -> int:
    return 600


@pytest.fixture
def policy(backend: str, limit: int) -> Policy:
    """Whose guest nobody else uses."""
    return Policy(backend=backend, resources={"inodes": next(_unused_limits), "timeout": limit})


@pytest.fixture
def stop(policy: Policy) -> Iterator[Stop]:
    """Stops the guests of the policy that there are when it is called."""
    before, paused = set(cells_of(os.getpid())), set[str]()
    label = f"fumehood.policy={policy.digest}"

    def stop_cells() -> None:
        for outside in set(cells_of(os.getpid())) - before:
            for cell in children_of(outside):
                os.kill(cell, signal.SIGSTOP)

    def pause_containers() -> None:
        paused.update(containers(engine.folder(), label))
        engine.docker(engine.folder(), "pause", *paused)

    yield stop_cells if policy.backend == "native" else pause_containers
    if paused:
        wait_until(lambda: paused.isdisjoint(containers(engine.folder(), label)), 30, "they are removed")


async def test_its_runs_are_lost_soon_after_their_time_and_a_new_sandbox_works(policy: Policy, stop: Stop) -> None:
    async with AsyncSandbox(policy) as box, AsyncExitStack() as stack:
        # Where sandboxes of a policy share a guest; a container has one alone.
        is_shared = policy.backend == "native"
        other = await stack.enter_async_context(AsyncSandbox(policy)) if is_shared else box
        background = await other.start(WAIT)
        run = await box.start(WAIT, timeout=1)
        for each in (background, run):
            assert isinstance(await anext(aiter(each.stream())), Stdout)
        stop()
        with anyio.fail_after(SECONDS):
            results = [await run.wait(), await background.wait()]
        assert {(result.status, result.cause) for result in results} == {(Status.ERROR, Cause.LOST)}
        assert "did not answer" in results[0].detail
        with pytest.raises(SandboxError, match="open a new one"):
            await box.run("pass")
    async with AsyncSandbox(policy) as box:
        assert (await box.run("print(1)")).stdout == "1\n"


async def test_its_session_is_lost_soon_after_the_time_of_a_run(policy: Policy, stop: Stop) -> None:
    async with AsyncSandbox(policy) as box, box.session() as session:
        await session.run("x = 1")
        stop()
        with anyio.fail_after(SECONDS):
            result = await session.run("import signal\nsignal.pause()  # " + "x" * 1_000_000, timeout=1)
        assert (result.status, result.cause) == (Status.ERROR, Cause.LOST)


@pytest.mark.parametrize("limit", [1])
async def test_its_file_service_is_lost_soon(policy: Policy, stop: Stop, monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncSandbox(policy) as box:
        await box.run("pass")
        stop()
        monkeypatch.setattr("fumehood.backends.runs.sandbox._LEAST_FILE_SECONDS", 1.0)
        with anyio.fail_after(SECONDS), pytest.raises(SandboxError, match="did not answer"):
            await box.files.write("file", bytes(10_000_000))


async def test_cancelling_its_run_does_not_take_long(policy: Policy, stop: Stop) -> None:
    async with AsyncSandbox(policy) as box:
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(box.run, "import signal\nopen('up', 'w').close()\nsignal.pause()")
                while "up" not in [entry.name for entry in await box.files.list()]:
                    pass
                stop()
                tasks.cancel_scope.cancel()


@asynccontextmanager
async def watched_loop() -> AsyncIterator[None]:
    """The event loop goes on meanwhile."""
    pauses: list[float] = []

    async def tick() -> None:
        while True:
            before = time.monotonic()
            await anyio.sleep(0.01)
            pauses.append(time.monotonic() - before)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        yield
        await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()
    assert max(pauses) < MOST_PAUSE_SECONDS


@pytest.mark.timeout(60)
async def test_signals_to_its_run_do_not_block_the_loop_and_killing_it_does_not_take_long(
    policy: Policy, stop: Stop
) -> None:
    async with AsyncSandbox(policy) as box, watched_loop():
        run = await box.start(WAIT)
        assert isinstance(await anext(aiter(run.stream())), Stdout)
        stop()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.wait)
            for number in range(1000):
                await run.send_signal(signal.SIGUSR1 if number % 2 else signal.SIGUSR2)
                await anyio.lowlevel.checkpoint()
            with anyio.fail_after(SECONDS):
                await run.kill()
        assert (await run.wait()).cause == Cause.CANCELLED
        with pytest.raises(SandboxError, match="open a new one"):
            await box.run("pass")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("backend", ["native"], indirect=True)
async def test_sandboxes_that_share_a_stopped_cell_do_not_block_the_loop(policy: Policy, stop: Stop) -> None:
    async with AsyncSandbox(policy) as box:
        await box.run("pass")
        stop()
        async with watched_loop(), AsyncSandbox(policy) as other:
            for _ in range(400):
                async with AsyncSandbox(policy):
                    await anyio.lowlevel.checkpoint()
            with pytest.raises(SandboxError, match="open a new one"):
                await box.run("pass")
            assert (await other.run("print(1)")).stdout == "1\n"


@pytest.mark.parametrize("backend", ["native"], indirect=True)
async def test_commands_that_had_no_room_arrive_when_it_goes_on(policy: Policy, stop: Stop) -> None:
    ignore, leave = (
        "signal.signal(signal.SIGUSR1, lambda *_: None)",
        "signal.signal(signal.SIGUSR2, lambda *_: exit(7))",
    )
    code = f"import signal\n{ignore}\n{leave}\n"
    before = set(cells_of(os.getpid()))
    async with AsyncSandbox(policy) as box:
        run = await box.start(code + "print('up', flush=True)\nwhile True: signal.pause()")
        assert isinstance(await anext(aiter(run.stream())), Stdout)
        stop()
        for _ in range(1000):
            await run.send_signal(signal.SIGUSR1)
        await run.send_signal(signal.SIGUSR2)
        for outside in set(cells_of(os.getpid())) - before:
            for cell in children_of(outside):
                os.kill(cell, signal.SIGCONT)
        with anyio.fail_after(SECONDS):
            assert (await run.wait()).exit_code == 7
        killed = await box.start(WAIT)
        stop()
        for _ in range(1000):
            await killed.send_signal(signal.SIGURG)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(killed.kill)
            await anyio.lowlevel.checkpoint()
            for outside in set(cells_of(os.getpid())) - before:
                for cell in children_of(outside):
                    os.kill(cell, signal.SIGCONT)
        assert (await killed.wait()).cause == Cause.CANCELLED
        assert (await box.run("print(1)")).stdout == "1\n"
