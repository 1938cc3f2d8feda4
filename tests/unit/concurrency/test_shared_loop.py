"""One event loop for the blocking API of a process: shared, interruptible, and left behind by nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from fumehood import UsageError
from fumehood.concurrency.shared_loop import SharedLoop

NAME: ContextVar[str] = ContextVar("name", default="none")


@pytest.fixture
def loop() -> Iterator[SharedLoop]:
    loop = SharedLoop()
    loop.begin()
    yield loop
    loop.stop()


async def thread_name() -> str:
    return threading.current_thread().name


def test_threads_that_call_first_at_once_share_one_loop() -> None:
    program = """
import threading
from fumehood.concurrency.shared_loop import shared_loop
together, loops = threading.Barrier(16), []
def first():
    together.wait()
    loops.append(shared_loop())
threads = [threading.Thread(target=first) for _ in range(16)]
for each in threads: each.start()
for each in threads: each.join()
print(len(set(loops)), [each.name for each in threading.enumerate()])
"""
    assert output_of(program) == "1 ['MainThread', 'fumehood']\n"


def test_calls_run_at_the_same_time(loop: SharedLoop) -> None:
    async def make() -> anyio.Event:
        return anyio.Event()

    met = loop.call(make)

    async def meet(is_last: bool) -> str:
        if is_last:
            met.set()
        await met.wait()
        return await thread_name()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(loop.call, lambda: meet(False))
        assert loop.call(lambda: meet(True)) == first.result(10) == "fumehood"


def test_an_error_is_raised_as_it_is(loop: SharedLoop) -> None:
    async def fail(error: BaseException) -> None:
        raise error

    for error in (LookupError("nothing here"), StopAsyncIteration(), SystemExit(3)):
        with pytest.raises(type(error)) as caught:
            loop.call(lambda error=error: fail(error))
        assert caught.value is error
    assert loop.call(thread_name) == "fumehood"


def test_the_callers_context_is_that_of_the_call(loop: SharedLoop) -> None:
    async def read() -> tuple[str, str]:
        return NAME.get(), await anyio.to_thread.run_sync(NAME.get)

    token = NAME.set("caller's")
    try:
        assert loop.call(read) == ("caller's", "caller's")
    finally:
        NAME.reset(token)


@pytest.mark.parametrize("kind", ["asyncio", "trio"])
def test_it_works_inside_of_a_running_event_loop(loop: SharedLoop, kind: str) -> None:
    pytest.importorskip(kind)

    async def main() -> str:
        return loop.call(sleep_and_name)

    async def sleep_and_name() -> str:
        await anyio.lowlevel.checkpoint()
        return await thread_name()

    assert anyio.run(main, backend=kind) == "fumehood"


def test_a_call_from_its_own_thread_is_an_error_and_not_a_deadlock(loop: SharedLoop) -> None:
    async def again() -> str:
        return loop.call(thread_name)

    with pytest.raises(UsageError, match="its own event loop"):
        loop.call(again)


def test_worker_threads_end_with_the_call_that_needed_them(loop: SharedLoop) -> None:
    async def in_worker() -> threading.Thread:
        return await anyio.to_thread.run_sync(threading.current_thread)

    worker = loop.call(in_worker)
    worker.join(10)
    assert not worker.is_alive()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """As in a program at a terminal: a process that was started in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_cancels_the_call_and_waits_for_its_clean_up(loop: SharedLoop) -> None:
    steps: list[str] = []

    async def wait() -> None:
        try:
            interrupt()
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(steps.append, "cleaned up")

    with pytest.raises(KeyboardInterrupt):
        loop.call(wait)
    assert steps == ["cleaned up"]
    assert loop.call(thread_name) == "fumehood"


@pytest.mark.usefixtures("interruptible")
def test_a_second_interrupt_does_not_wait_for_a_clean_up_that_hangs(loop: SharedLoop) -> None:
    may_end = threading.Event()
    has_ended = threading.Event()

    async def hang() -> None:
        try:
            interrupt()
            await anyio.sleep_forever()
        finally:
            interrupt()
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(may_end.wait, 10)
            has_ended.set()

    with pytest.raises(KeyboardInterrupt):
        loop.call(hang)
    assert not has_ended.is_set()
    may_end.set()
    assert has_ended.wait(10)


def test_what_was_started_ends_when_its_future_is_cancelled(loop: SharedLoop) -> None:
    has_begun, has_ended = threading.Event(), threading.Event()

    async def wait() -> None:
        try:
            has_begun.set()
            await anyio.sleep_forever()
        finally:
            has_ended.set()

    future = loop.start(wait)
    assert has_begun.wait(10)
    assert future.cancel()
    assert has_ended.wait(10)
    assert loop.start(thread_name).result(10) == "fumehood"


def test_a_forked_child_has_a_loop_of_its_own() -> None:
    program = """
import os
from fumehood import UsageError
from fumehood.concurrency.shared_loop import shared_loop
async def process():
    return os.getpid()
parents = shared_loop()
assert parents.call(process) == os.getpid()
child = os.fork()
if child == 0:
    try:
        parents.call(process)
    except UsageError as error:
        print(error)
    print(shared_loop() is not parents, shared_loop().call(process) == os.getpid(), flush=True)
    raise SystemExit
os.waitpid(child, 0)
print(shared_loop() is parents, parents.call(process) == os.getpid())
"""
    assert output_of(program).splitlines() == [
        "the sandbox belongs to the process that opened it; open another one after a fork",
        "True True",
        "True True",
    ]


def test_a_child_with_the_number_of_its_parent_has_a_loop_of_its_own() -> None:
    """Each is process 1 of a namespace of its own."""
    program = """
import ctypes, os
from fumehood.concurrency.shared_loop import shared_loop
async def process():
    return os.getpid()
print(shared_loop().call(process), flush=True)
assert ctypes.CDLL(None).unshare(0x2000_0000) == 0
child = os.fork()
if child == 0:
    print(shared_loop().call(process), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]
    done = subprocess.run(
        [*command, sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.split(), done.stderr) == (["1", "1"], "")


def test_a_process_ends_without_complaint_also_while_another_thread_waits() -> None:
    program = """
import anyio, threading
from fumehood.concurrency.shared_loop import shared_loop
has_begun = threading.Event()
async def wait():
    has_begun.set()
    await anyio.sleep_forever()
threading.Thread(target=shared_loop().call, args=(wait,), daemon=True).start()
has_begun.wait()
print("end")
"""
    assert output_of(program) == "end\n"


def test_the_loop_is_closed_at_the_end_of_the_process() -> None:
    program = """
import asyncio
from fumehood.concurrency.shared_loop import shared_loop
async def get():
    return asyncio.get_running_loop()
class Last:
    loop = shared_loop().call(get)
    def __del__(self):
        print(self.loop.is_closed())
last = Last()
"""
    assert output_of(program) == "True\n"


def output_of(program: str) -> str:
    """What a process of its own prints, with every warning as an error; complaints are failures."""
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=dict(os.environ))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
