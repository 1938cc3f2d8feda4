"""Runs that go on while their caller does other things, and runs with a terminal."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from containers import LendSandbox

from fumehood import AsyncSandbox, Cause, Finished, Policy, Sandbox, Status, Stdout, UsageError

pytestmark = pytest.mark.anyio
MakePolicy = Callable[..., Policy]
ENDLESS = "import threading\nprint('up', flush=True)\nthreading.Event().wait()"


async def output_until(run: Any, word: bytes) -> bytes:
    """What it writes, up to and with a word; the stream is left then, and the run goes on."""
    seen = b""
    async with aclosing(run.stream()) as events:
        async for event in events:
            assert not isinstance(event, Finished), f"it ended before it said {word!r}: {seen!r} {event}"
            seen += event.data
            if word in seen:
                return seen
    raise AssertionError("unreachable")


async def test_a_run_goes_on_while_others_begin_and_end(shared_box: LendSandbox) -> None:
    async with shared_box() as box:
        run = await box.start(ENDLESS)
        await output_until(run, b"\n")
        assert (await box.run("print(1)")).stdout == "1\n"
        assert await run.poll() is None
        result = await run.kill()
    assert (result.status, result.cause, result.stdout) == (Status.CANCELLED, Cause.CANCELLED, "")


async def test_output_is_read_piece_by_piece_and_the_result_has_the_rest(shared_box: LendSandbox) -> None:
    code = "import sys\nfor line in sys.stdin: print(line.upper(), end='')\nprint('bye', file=sys.stderr)"
    async with shared_box() as box:
        run = await box.start(code)
        assert await run.read() == await run.read()  # nothing yet, twice
        await run.write("one\n")
        assert await output_until(run, b"\n") == b"ONE\n"
        await run.write(b"two\n")
        await run.close_stdin()
        result = await run.wait()
        rest = await run.read()
    assert (result.ok, result.stdout, result.stderr) == (True, "TWO\n", "bye\n")
    assert (rest.stdout, rest.stderr) == (b"TWO\n", b"bye\n")


@pytest.mark.one_container
async def test_a_result_stays_what_it_is(shared_box: LendSandbox) -> None:
    async with shared_box() as box:
        run = await box.start("raise SystemExit(3)")
        first = await run.wait()
        assert [first, first, first] == [await run.wait(), await run.poll(), await run.kill()]
    assert first.exit_code == 3


async def test_a_signal_reaches_the_program(shared_box: LendSandbox) -> None:
    code = "import signal\nsignal.signal(signal.SIGUSR1, lambda *_: print('usr1'))\nprint('up')\nsignal.pause()"
    async with shared_box() as box:
        run = await box.start(code)
        await output_until(run, b"\n")
        await run.send_signal(signal.SIGUSR1)
        assert (await run.wait()).stdout == "usr1\n"
        with pytest.raises(UsageError, match="not the number of a signal"):
            await run.send_signal(1000)
        await run.send_signal(signal.SIGTERM)  # to nobody


async def test_an_interrupt_ends_a_shell_with_the_program_that_it_waits_for(shared_box: LendSandbox) -> None:
    """As Ctrl-C does at a terminal: a shell alone goes on waiting."""
    async with shared_box() as box:
        # The program itself says that it is there: of a signal that comes before, dash keeps nothing for its child.
        run = await box.start("echo up > lines; tail -f lines; echo not reached", language="sh")
        await output_until(run, b"\n")
        await run.send_signal(signal.SIGINT)
        result = await run.wait()
    assert (result.status, result.signal, result.stdout) == ("error", "SIGINT", "")


@pytest.mark.one_container
async def test_many_tasks_can_wait_for_one_run(shared_box: LendSandbox) -> None:
    results = []

    async def wait() -> None:
        results.append(await run.wait())

    async with shared_box() as box:
        run = await box.start("print(input())")
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(wait)
            await run.write("x\n")
    assert [result.stdout for result in results] == ["x\n"] * 5


async def test_a_run_can_be_killed_by_whoever_reads_its_stream(shared_box: LendSandbox) -> None:
    async with shared_box() as box:
        run = await box.start(ENDLESS)
        results = []
        async for event in run.stream():
            if isinstance(event, Stdout):
                results.append(await run.kill())
            elif isinstance(event, Finished):
                results.append(event.result)
    assert results[0] == results[1]
    assert results[0].status is Status.CANCELLED


async def test_closing_the_sandbox_ends_its_runs(make_policy: MakePolicy) -> None:
    code = "import os, time\nwhile True: open('beat', 'w').write(str(time.monotonic())); os.write(1, b'.')"
    async with AsyncSandbox(make_policy()) as box:
        await output_until(await box.start(code), b".")
        await box.start(ENDLESS)


async def test_the_time_limit_holds_without_anybody_looking(make_policy: MakePolicy) -> None:
    async with AsyncSandbox(make_policy()) as box:
        run = await box.start(ENDLESS, timeout=0.3)
        watch = await box.start(ENDLESS)
        result = await run.wait()
        assert await watch.poll() is None
    assert (result.status, result.cause) == (Status.TIMEOUT, Cause.WALL_TIME)


async def test_a_program_waits_when_nobody_reads(shared_box: LendSandbox) -> None:
    """Four megabytes do not fit into what is held for it; whoever reads later gets every byte."""
    code = "import os\nfor n in range(4096): os.write(1, b'x' * 1024)\nprint('done')"
    async with shared_box(resources={"output": "8M"}) as box:
        run = await box.start(code)
        other = await box.run("print('meanwhile')")
        result = await run.wait()
    assert other.stdout == "meanwhile\n"
    assert len(result.stdout_bytes) == 4096 * 1024 + 5


async def test_more_output_than_allowed_ends_it(shared_box: LendSandbox) -> None:
    async with shared_box(resources={"output": "4K"}) as box:
        run = await box.start("while True: print('x' * 100)")
        result = await run.wait()
    assert (result.status, result.cause, len(result.stdout_bytes)) == (Status.RESOURCE_EXCEEDED, Cause.OUTPUT, 4096)


async def test_input_for_a_program_that_is_gone_is_lost_without_a_word(shared_box: LendSandbox) -> None:
    async with shared_box() as box:
        run = await box.start("pass")
        await run.wait()
        await run.write(b"x" * 10_000_000)
        await run.close_stdin()


@pytest.mark.one_container
async def test_a_mistake_is_raised_when_it_is_found(shared_box: LendSandbox) -> None:
    async with shared_box() as box:
        with pytest.raises(UsageError, match="unknown language"):
            await box.start("x", language="cobol")
        run = await box.start("pass", cwd="no/such/folder")
        with pytest.raises(UsageError, match="cannot be entered"):
            await run.wait()


@pytest.mark.one_container
def test_the_blocking_api_has_the_same_methods(lend_box: Callable[..., Sandbox]) -> None:
    run = lend_box().start("print(input())\nprint(input())")
    run.write("a\n")
    run.write("b\n")
    assert run.wait().stdout == "a\nb\n"
    events = list(run.stream())
    assert [type(event) for event in events] == [Stdout, Finished]
    assert (run.poll(), run.kill()) == (run.wait(), run.wait())


async def test_a_terminal_is_one_to_the_program(shared_box: LendSandbox) -> None:
    code = (
        "import os, sys\nprint([os.isatty(n) for n in range(3)], os.get_terminal_size(), os.ttyname(0))\nprint(input())"
    )
    async with shared_box() as box:
        run = await box.start(code, terminal=(101, 33))
        seen = await output_until(run, b"\r\n")
        assert seen == b"[True, True, True] os.terminal_size(columns=101, lines=33) /dev/pts/0\r\n"
        await run.write("typed\n")
        assert (await run.wait()).stdout.endswith("typed\r\ntyped\r\n")  # the echo, and the answer


async def test_a_terminal_can_be_resized(shared_box: LendSandbox) -> None:
    code = (
        "import os, signal\nsignal.signal(signal.SIGWINCH, lambda *_: print(tuple(os.get_terminal_size())))\n"
        "print('up')\nsignal.pause()"
    )
    async with shared_box() as box:
        run = await box.start(code, terminal=(80, 24), timeout=5)
        await output_until(run, b"\n")
        await run.resize(120, 50)
        assert (await run.wait()).stdout == "(120, 50)\r\n"
        await run.resize(80, 24)  # of nothing


async def test_control_c_interrupts_what_runs_in_a_terminal(shared_box: LendSandbox) -> None:
    async with shared_box() as box:
        run = await box.start(
            argv=["sh", "-c", "trap 'echo caught; exit 5' INT; echo up; read line"], terminal=(80, 24), timeout=5
        )
        await output_until(run, b"\n")
        await run.write(b"\x03")
        result = await run.wait()
    assert "caught" in result.stdout
    assert result.exit_code == 5


async def test_an_interactive_shell_has_job_control(shared_box: LendSandbox) -> None:
    async with shared_box() as box:
        run = await box.start(argv=["bash", "--norc", "-i"], env={"PS1": "$ "}, terminal=(80, 24))
        await run.write("sleep 100 & jobs; kill %1; wait; echo over\nexit 4\n")
        result = await run.wait()
    assert "no job control" not in result.stdout
    assert "[1]+" in result.stdout
    assert result.exit_code == 4


@pytest.mark.one_container
@pytest.mark.parametrize("size", [(0, 24), (80, 0), (-1, 24), (80, 70_000)])
async def test_a_terminal_of_an_impossible_size_is_refused(shared_box: LendSandbox, size: tuple[int, int]) -> None:
    async with shared_box() as box:
        with pytest.raises(UsageError, match="cannot be"):
            await box.start("pass", terminal=size)


@pytest.mark.one_container
async def test_a_terminal_has_no_other_input(shared_box: LendSandbox) -> None:
    async with shared_box() as box:
        with pytest.raises(UsageError, match="write to the terminal"):
            await box.start("pass", terminal=(80, 24), stdin=b"x")
        with pytest.raises(UsageError, match="cannot be entered"):
            await (await box.start("pass", terminal=(80, 24), cwd="nowhere")).wait()


async def test_a_terminal_is_gone_with_its_program(shared_box: LendSandbox) -> None:
    """A process that keeps the terminal open cannot keep the run going."""
    code = "import os\nif os.fork():\n    print('parent')\nelse:\n    os.setsid()\n    import time; time.sleep(100)"
    async with shared_box() as box:
        run = await box.start(code, terminal=(80, 24))
        result = await run.wait()
    assert (result.status, result.stdout) == (Status.SUCCESS, "parent\r\n")


@pytest.mark.one_container
async def test_what_was_read_is_in_the_result_as_well(shared_box: LendSandbox) -> None:
    async with shared_box() as box:
        run = await box.start("print('one')\nprint(input())")
        read = b""
        while read != b"one\n":
            read += (await run.read()).stdout
            await anyio.lowlevel.checkpoint()
        await run.write("two\n")
        assert (await run.wait()).stdout == "one\ntwo\n"


async def test_a_signal_to_the_sandbox_reaches_the_program_that_it_runs(shared_box: LendSandbox) -> None:
    async with shared_box() as box, aclosing(box.stream(ENDLESS)) as events:
        async for event in events:
            if isinstance(event, Stdout):
                await box.send_signal(signal.SIGINT)
            if isinstance(event, Finished):
                assert (event.result.exit_code, event.result.signal) == (130, "SIGINT")


async def test_a_run_that_many_wait_for_has_one_result(shared_box: LendSandbox) -> None:
    results: list[Any] = []

    async def wait(run: Any) -> None:
        results.append(await run.wait())

    async with shared_box() as box:
        run = await box.start("input()")
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(wait, run)
            await run.close_stdin()
    assert results[0] == results[1] == results[2]
