"""Events arrive while the program runs, the result comes last, and leaving early ends the run."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import pytest
from containers import LendSandbox

from fumehood import AsyncSandbox, DeniedError, Finished, Sandbox, Status, Stderr, Stdout, UsageError

pytestmark = [pytest.mark.anyio, pytest.mark.one_container]
WORD_THEN_ANSWER = "print('question')\nprint(input())"


async def test_events_come_in_order_and_the_result_last(shared_box: LendSandbox) -> None:
    async with shared_box() as box:
        events = [event async for event in box.stream("import sys\nprint('a')\nprint('b', file=sys.stderr)")]
    assert b"".join(event.data for event in events if isinstance(event, Stdout)) == b"a\n"
    assert b"".join(event.data for event in events if isinstance(event, Stderr)) == b"b\n"
    assert [type(event) for event in events].count(Finished) == 1
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.result.status, last.result.stdout, last.result.stderr) == (Status.SUCCESS, "", "")
    assert all(event.data for event in events[:-1] if not isinstance(event, Finished))


async def test_output_arrives_before_the_program_ends(shared_box: LendSandbox) -> None:
    async with shared_box() as box:
        events = box.stream("import threading\nimport sys; sys.stdout.write('first\\n')\nthreading.Event().wait()")
        async with aclosing(events):
            assert await anext(events) == Stdout(b"first\n")


async def test_a_run_that_fails_streams_its_result(shared_box: LendSandbox) -> None:
    async with shared_box() as box:
        events = [event async for event in box.stream("import sys; sys.exit(3)")]
    assert [event.result.exit_code for event in events if isinstance(event, Finished)] == [3]


async def test_a_mistake_is_raised_before_the_first_event(shared_box: LendSandbox) -> None:
    async with shared_box() as box:
        with pytest.raises(UsageError):
            await anext(box.stream("pass", language="cobol"))
        with pytest.raises(DeniedError):
            await anext(box.stream("pass", timeout=3600))


async def test_leaving_early_ends_the_run(shared_box: LendSandbox) -> None:
    """The second run sees no process of the first, and the first can no longer change the shared workspace."""
    endless = (
        "import os\nn = 0\nwhile True:\n    n += 1\n"
        "    open('alive', 'w').write(str(n))\n    if n == 1: os.write(1, b'going\\n')"
    )
    async with shared_box() as box:
        async with aclosing(box.stream(endless)) as events:
            assert await anext(events) == Stdout(b"going\n")
        first = await box.run(argv=["cat", "alive"])
        second = await box.run("for _ in range(20): open('alive').read()\nprint(open('alive').read(), end='')")
    assert first.stdout == second.stdout


async def test_a_slow_consumer_gets_everything(shared_box: LendSandbox) -> None:
    received = 0
    async with shared_box(resources={"output": "8M"}) as box:
        async for event in box.stream("import sys\nfor _ in range(64): sys.stdout.write('x' * 65536)"):
            await anyio.sleep(0.002)
            received += len(event.data) if isinstance(event, Stdout) else 0
    assert received == 64 * 65536


async def test_a_consumer_slower_than_the_time_limit_still_gets_the_end(shared_box: LendSandbox) -> None:
    """The limit is the program's, not the caller's: a program that ended in time has succeeded."""
    async with shared_box() as box:
        events = []
        async for event in box.stream("import os\nos.write(1, b'a')\nos.write(2, b'b' * 1000)", timeout=0.5):
            if not events:
                await anyio.sleep(3.0)  # longer than the time limit and any grace period after it
            events.append(event)
    assert isinstance(events[-1], Finished)
    assert events[-1].result.status is Status.SUCCESS
    assert sum(len(event.data) for event in events[:-1] if not isinstance(event, Finished)) == 1001


async def test_a_program_blocked_by_its_consumer_is_out_of_time(shared_box: LendSandbox) -> None:
    """A consumer that takes nothing cannot keep a program alive beyond its limit."""
    async with shared_box(resources={"output": "8M"}) as box:
        events = []
        async for event in box.stream("import sys\nwhile True: sys.stdout.write('x' * 1000)", timeout=0.5):
            if not events:
                await anyio.sleep(3.0)
            events.append(event)
    assert isinstance(events[-1], Finished)
    assert events[-1].result.status is Status.TIMEOUT


async def test_two_streams_at_once_do_not_mix(shared_box: LendSandbox) -> None:
    async def collect(box: AsyncSandbox, letter: str) -> None:
        source = f"for _ in range(1000): print('{letter}' * 10)"
        collected[letter] = b"".join([e.data async for e in box.stream(source) if isinstance(e, Stdout)])

    collected: dict[str, bytes] = {}
    async with shared_box() as box, anyio.create_task_group() as tasks:
        for letter in "abc":
            tasks.start_soon(collect, box, letter)
    assert collected == {letter: (letter.encode() * 10 + b"\n") * 1000 for letter in "abc"}


def test_the_blocking_stream_is_the_same(box: Sandbox) -> None:
    events = list(box.stream("import sys; sys.stdout.write('a\\n')"))
    assert events[0] == Stdout(b"a\n")
    assert isinstance(events[-1], Finished)


def test_leaving_the_blocking_stream_early_ends_the_run(box: Sandbox) -> None:
    for event in box.stream("import threading\nimport sys; sys.stdout.write('going\\n')\nthreading.Event().wait()"):
        assert event == Stdout(b"going\n")
        break
    assert box.run("print('on')").stdout == "on\n"
