"""Python state that lives on between runs, and what is shown of it."""

from __future__ import annotations

import itertools
import math
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from containers import LendSandbox

from fumehood import (
    AsyncSandbox,
    AsyncSession,
    Cause,
    DeniedError,
    Display,
    Finished,
    Policy,
    RunResult,
    Sandbox,
    Status,
    Stdout,
    UsageError,
)

pytestmark = pytest.mark.anyio
MakePolicy = Callable[..., Policy]


@pytest.fixture
async def session(shared_box: LendSandbox) -> AsyncIterator[AsyncSession]:
    async with shared_box() as box, box.session() as opened:
        yield opened


def shown(result: RunResult) -> str:
    """The value of the last expression."""
    (display,) = result.displays
    return cast("str", display.data["text/plain"])


async def test_state_lives_on_between_runs(session: AsyncSession) -> None:
    assert (await session.run("import math\nx = 6")).displays == ()
    assert (await session.run("def double(n): return n * 2")).ok
    assert shown(await session.run("double(x) + math.pi")) == str(12 + math.pi)


async def test_two_sessions_of_a_sandbox_share_the_workspace_and_nothing_else(shared_box: LendSandbox) -> None:
    async with shared_box() as box, box.session() as one, box.session() as two:
        await one.run("x = 1\nopen('here', 'w').write('a')\nopen('/tmp/there', 'w').write('b')")
        assert shown(await two.run("'x' in globals(), open('here').read(), __import__('os').listdir('/tmp')")) == (
            "(False, 'a', [])"
        )
        assert (await box.run("print(open('here').read())")).stdout == "a\n"


@pytest.mark.one_container
async def test_a_failure_leaves_the_state_as_it_is(session: AsyncSession) -> None:
    await session.run("x = 1")
    result = await session.run("x = 2\nraise ValueError('no')")
    assert (result.status, result.cause, result.exit_code) == (Status.ERROR, Cause.EXIT, 1)
    assert result.stderr.endswith("    raise ValueError('no')\nValueError: no\n")
    assert "guest" not in result.stderr
    assert (await session.run("import sys\nsys.exit(7)")).exit_code == 7
    after = await session.run("x")
    assert (shown(after), after.restarted) == ("2", False)


@pytest.mark.one_container
async def test_output_displays_and_the_result_arrive_in_order(session: AsyncSession) -> None:
    events = [event async for event in session.stream("print('first')\ndisplay('second')\n'third'")]
    # Output comes in as many pieces as the pipe was read in.
    kinds = [kind for kind, _ in itertools.groupby(events, type)]
    assert kinds == [Stdout, Display, Finished]
    assert b"".join(event.data for event in events if isinstance(event, Stdout)) == b"first\n"
    assert [event.data["text/plain"] for event in events if isinstance(event, Display)] == ["'second'", "'third'"]


@pytest.mark.one_container
async def test_rich_results_come_with_all_their_media_types(session: AsyncSession) -> None:
    source = (
        "class Rich:\n"
        "    def __repr__(self): return 'plain'\n"
        "    def _repr_html_(self): return '<b>rich</b>'\n"
        "    def _repr_png_(self): return b'\\x89PNG...'\n"
        "    def _repr_json_(self): return {'a': [1, None]}\n"
        "Rich()"
    )
    (display,) = (await session.run(source)).displays
    assert dict(display.data) == {
        "text/plain": "plain",
        "text/html": "<b>rich</b>",
        "image/png": b"\x89PNG...",
        "application/json": {"a": [1, None]},
    }


@pytest.mark.one_container
async def test_input_is_given_to_each_run(session: AsyncSession) -> None:
    assert (await session.run("print(input(), input())", stdin="a\nb\n")).stdout == "a b\n"
    assert "EOFError" in (await session.run("input()")).stderr


async def test_a_run_can_be_interrupted_and_the_state_is_kept(session: AsyncSession) -> None:
    await session.run("n = 0")
    results = []

    async def run() -> None:
        results.append(await session.run("print('up')\nwhile True: n += 1"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        while not results:
            await session.interrupt()
            await anyio.lowlevel.checkpoint()
    assert (results[0].status, results[0].cause) == (Status.CANCELLED, Cause.CANCELLED)
    after = await session.run("n > 0 or n == 0")
    assert (shown(after), after.restarted) == ("True", False)


async def test_an_interrupt_between_runs_changes_nothing(session: AsyncSession) -> None:
    await session.interrupt()
    assert shown(await session.run("1 + 1")) == "2"


async def test_a_run_out_of_time_is_interrupted_and_the_state_is_kept(session: AsyncSession) -> None:
    await session.run("x = 'kept'")
    result = await session.run("while True: pass", timeout=0.3)
    assert (result.status, result.cause, result.exit_code) == (Status.TIMEOUT, Cause.WALL_TIME, 124)
    after = await session.run("x")
    assert (shown(after), after.restarted) == ("'kept'", False)


async def test_a_run_that_will_not_be_interrupted_is_ended_and_the_next_one_says_so(session: AsyncSession) -> None:
    deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    result = await session.run(deaf, timeout=0.3)
    assert (result.status, result.cause) == (Status.TIMEOUT, Cause.WALL_TIME)
    assert "state is lost" in result.detail
    after = await session.run("'signal' in globals()")
    assert (shown(after), after.restarted) == ("False", True)
    assert not (await session.run("1")).restarted


@pytest.mark.parametrize(
    ("source", "cause", "code"),
    [
        ("import os; os._exit(4)", Cause.EXIT, 4),
        ("import os; os._exit(0)", Cause.EXIT, 1),
        ("import os; os.kill(os.getpid(), 11)", Cause.SIGNAL, 128 + signal.SIGSEGV),
        ("import ctypes; ctypes.string_at(0)", Cause.SIGNAL, 128 + signal.SIGSEGV),
    ],
)
async def test_a_session_that_ends_says_why_and_the_next_run_begins_anew(
    session: AsyncSession, source: str, cause: Cause, code: int
) -> None:
    await session.run("x = 1")
    result = await session.run(source)
    assert (result.status, result.cause, result.exit_code) == (Status.ERROR, cause, code)
    assert "state is lost" in result.detail
    after = await session.run("'x' in globals()")
    assert (shown(after), after.restarted) == ("False", True)


async def test_a_session_out_of_memory_says_so(make_policy: MakePolicy) -> None:
    async with AsyncSandbox(make_policy(resources={"memory": "64M"})) as box, box.session() as session:
        result = await session.run("kept = []\nwhile True: kept.append(bytearray(1 << 20))")
        assert (result.status, result.cause) == (Status.RESOURCE_EXCEEDED, Cause.MEMORY)
        assert (await session.run("1")).status is Status.SUCCESS


@pytest.mark.one_container
async def test_too_much_output_stops_the_run_and_not_the_session(shared_box: LendSandbox) -> None:
    async with shared_box(resources={"output": "4K"}) as box, box.session() as session:
        await session.run("x = 'kept'")
        for flood in ("while True: print('y' * 100)", "while True: display('y' * 100)"):
            result = await session.run(flood)
            assert (result.status, result.cause, result.truncated) == (Status.RESOURCE_EXCEEDED, Cause.OUTPUT, True)
            assert len(result.stdout_bytes) <= 4096
        assert shown(await session.run("x")) == "'kept'"


# Displays as the session sends them, at once: on a busy machine that many are on their way before it is interrupted.
LATE = """
import os, signal, struct
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
text = b'{"display": {"text/plain": ["text", 1]}, "metadata": {}}'
data = memoryview((struct.pack("!II", len(text), 1) + text + b"y") * 3000)
while data:
    data = data[os.write(3, data):]
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
while True: pass
"""


@pytest.mark.one_container
async def test_displays_that_were_on_their_way_at_the_limit_do_not_cost_a_session(shared_box: LendSandbox) -> None:
    async with shared_box(resources={"output": "4K"}) as box, box.session() as session:
        await session.run("x = 'kept'")
        result = await session.run(LATE)
        assert (result.status, result.cause, result.truncated) == (Status.RESOURCE_EXCEEDED, Cause.OUTPUT, True)
        assert shown(await session.run("x")) == "'kept'"


async def test_a_cancelled_run_leaves_a_session_that_works(session: AsyncSession) -> None:
    await session.run("x = 'kept'")
    for _ in range(3):
        with anyio.move_on_after(0.1):
            await session.run("while True: pass")
    assert shown(await session.run("x")) == "'kept'"


@pytest.mark.one_container
async def test_leaving_a_stream_interrupts_its_run(session: AsyncSession) -> None:
    async with aclosing(cast("Any", session.stream("n = 0\nprint('up')\nwhile True: n += 1"))) as events:
        assert isinstance(await anext(events), Stdout)
    assert (await session.run("n >= 0")).ok


@pytest.mark.one_container
async def test_runs_of_a_session_wait_for_each_other(session: AsyncSession) -> None:
    await session.run("log = []")
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(session.run, "log.append('in'); log.append('out')")
    assert shown(await session.run("log == ['in', 'out'] * 10")) == "True"


@pytest.mark.one_container
async def test_restarting_forgets_everything(session: AsyncSession) -> None:
    await session.run("x = 1")
    await session.restart()
    after = await session.run("'x' in globals()")
    assert (shown(after), after.restarted) == ("False", False)


async def test_background_work_of_a_session_goes_on_between_runs(session: AsyncSession) -> None:
    await session.run("import subprocess\nchild = subprocess.Popen(['cat'], stdin=-1, stdout=-1)")
    assert shown(await session.run("child.communicate(b'still here')[0]")) == "b'still here'"


@pytest.mark.one_container
async def test_what_a_session_cannot_have_is_refused(session: AsyncSession) -> None:
    for options in ({"env": {"A": "1"}}, {"cwd": "x"}, {"args": ["a"]}, {"language": "sh"}, {"stdin": 0}):
        with pytest.raises(UsageError, match=r"session|stdin"):
            await session.run("1", **cast("Any", options))
    with pytest.raises(DeniedError):
        await session.run("1", timeout=3600)


@pytest.mark.one_container
async def test_a_closed_session_says_so(shared_box: LendSandbox) -> None:
    async with shared_box() as box:
        async with box.session() as session:
            await session.run("1")
        with pytest.raises(UsageError, match="closed"):
            await session.run("1")


@pytest.mark.one_container
async def test_a_sandbox_can_be_one_session(make_policy: MakePolicy) -> None:
    async with AsyncSandbox(make_policy(), session=True) as box:
        await box.run("x = 5")
        assert shown(await box.run("x")) == "5"
        assert [type(event) async for event in box.stream("x")] == [Display, Finished]
        assert (await box.run("echo no state here", language="sh")).stdout == "no state here\n"


@pytest.mark.one_container
def test_the_blocking_api_has_sessions(lend_box: Callable[..., Sandbox], make_policy: MakePolicy) -> None:
    with lend_box().session() as session:
        session.run("x = 1")
        assert shown(session.run("x")) == "1"
        session.interrupt()
        assert [type(event) for event in session.stream("x")] == [Display, Finished]
        session.restart()
    with Sandbox(make_policy(), session=True) as box:
        box.run("y = 2")
        assert shown(box.run("y")) == "2"


@pytest.mark.parametrize(
    "forgery",
    [
        "import os; os.write(3, b'\\xff' * 100); os.read(os.pipe()[0], 1)",
        "import os, signal; signal.signal(signal.SIGINT, signal.SIG_IGN); os.close(3); os.read(os.pipe()[0], 1)",
        (
            "import os, json, struct; h = json.dumps({'display': {'a/b': ['text', 10**9]}, 'metadata': {}}).encode(); "
            "os.write(3, struct.pack('!II', len(h), 0) + h); os.read(os.pipe()[0], 1)"
        ),
    ],
)
async def test_a_program_that_misuses_its_link_loses_its_session_and_no_more(
    session: AsyncSession, forgery: str
) -> None:
    result = await session.run(forgery)
    assert (result.status, result.cause) == (Status.ERROR, Cause.LOST)
    assert "misused" in result.detail
    after = await session.run("1")
    assert (after.ok, after.restarted) == (True, True)


async def test_a_forged_end_does_not_stop_the_clock_of_the_next_run(session: AsyncSession) -> None:
    """The program says that it is done and goes on; the next run finds the session busy, and its time runs."""
    forged = (
        "import os, json, struct; h = json.dumps({'done': 1, 'ended': 'ok', 'code': 0, 'exhausted': ''}).encode()\n"
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "os.write(3, struct.pack('!II', len(h), 0) + h)\nwhile True: pass"
    )
    assert (await session.run(forged)).ok
    result = await session.run("1", timeout=0.3)
    assert (result.status, result.cause) == (Status.TIMEOUT, Cause.WALL_TIME)
