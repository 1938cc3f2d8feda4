"""A guest that is stopped from outside does not answer and ends nothing: the host has a clock of its own."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack

import anyio
import engine
import pytest
from live.traces import cells_of, containers, wait_until
from requirements import require

from fumehood import AsyncSandbox, Cause, Policy, SandboxError, Status, Stdout

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

# Far below what it took to notice without a clock, far above the second that it takes.
SECONDS = 20
WAIT = "import signal\nprint('up', flush=True)\nsignal.pause()"
BACKENDS = ["native", *(engine.BACKENDS if os.geteuid() == 0 else ())]
_unused_limits = itertools.count(30_000)

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
            for cell in cells_of(outside):
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
async def test_its_file_service_is_lost_soon(policy: Policy, stop: Stop) -> None:
    async with AsyncSandbox(policy) as box:
        await box.run("pass")
        stop()
        with anyio.fail_after(SECONDS + 11), pytest.raises(SandboxError, match="did not answer"):
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
