"""Interrupts: they end a run, at any moment of it, and never the session."""

from __future__ import annotations

import os
import random
import signal
import threading

import pytest
import sampling
from unit.guest.program.session.talking import Session

STORM_RUNS = sampling.amount(100, whole=300)
ENDLESS = [
    "print('here')\nwhile True: pass",
    "import time\nprint('here')\ntime.sleep(1000)",
    "import threading\nprint('here')\nthreading.Event().wait()",
    "import subprocess\nprint('here')\nsubprocess.run(['sleep', '1000'])",
    "import asyncio\nprint('here')\nawait asyncio.sleep(1000)",
    "import asyncio\nawait asyncio.sleep(0)\nprint('here')\nwhile True: pass",
    "import asyncio\nprint('here')\nasyncio.run(asyncio.sleep(1000))",
    "import os\nprint('here')\nos.read(os.pipe()[0], 1)",
]


@pytest.mark.parametrize("source", ENDLESS)
def test_an_interrupt_ends_the_run_and_keeps_the_state(session: Session, source: str) -> None:
    session.execute("kept = 1")
    started = session.start(source)
    session.wait_for_output("here\n")
    answer = session.finish_interrupted(started)
    assert answer.end == {"ended": "interrupted", "code": 130, "exhausted": ""}
    assert "KeyboardInterrupt" in answer.stderr
    assert "guest" not in answer.stderr
    assert session.execute("kept").values == ["1"]


def test_an_interrupt_counts_from_the_moment_the_run_has_started(session: Session) -> None:
    for _ in range(100):
        started = session.start("while True: pass")
        session.interrupt()
        assert session.finish(started).ended == "interrupted"


def test_an_interrupt_between_runs_is_forgotten(session: Session) -> None:
    for number in range(100):
        session.interrupt()
        assert session.execute(f"{number} + 1").values == [str(number + 1)]


def test_an_interrupt_between_runs_is_forgotten_even_with_threads(session: Session) -> None:
    """A thread that does not block the signal takes it; the main thread hears of it all the same."""
    session.execute(
        "import threading\nthreads = [threading.Thread(target=threading.Event().wait, daemon=True) for _ in range(3)]\n"
        "for thread in threads: thread.start()"
    )
    for number in range(50):
        session.interrupt()
        assert session.execute(f"{number} + 1").values == [str(number + 1)]


def test_a_program_may_catch_an_interrupt_and_go_on(session: Session) -> None:
    source = "try:\n    print('here')\n    while True: pass\nexcept KeyboardInterrupt:\n    caught = True\ncaught"
    started = session.start(source)
    session.wait_for_output("here\n")
    session.interrupt()
    answer = session.finish(started)
    assert (answer.ended, answer.values) == ("ok", ["True"])


def test_what_is_awaited_is_cancelled_and_may_clean_up(session: Session) -> None:
    source = """
import asyncio
async def work():
    try:
        print('here')
        await asyncio.sleep(1000)
    finally:
        await asyncio.sleep(0)
        print('cleaned up')
await work()
"""
    started = session.start(source)
    session.wait_for_output("here\n")
    answer = session.finish_interrupted(started)
    assert (answer.ended, answer.stdout) == ("interrupted", "here\ncleaned up\n")
    assert session.execute("await asyncio.sleep(0, 'and on')").values == ["'and on'"]


def test_a_handler_of_the_program_is_its_own_during_runs(session: Session) -> None:
    session.execute("import signal\nhits = []\nx = signal.signal(signal.SIGINT, lambda *_: hits.append(1))")
    session.interrupt()  # nobody's: it comes between runs
    session.execute("pass")
    started = session.start("print('here')\nwhile not hits: pass")
    session.wait_for_output("here\n")
    session.interrupt()
    assert session.finish(started).ended == "ok"
    assert session.execute("len(hits)").values == ["1"]
    session.execute("x = signal.signal(signal.SIGINT, signal.default_int_handler)")
    started = session.start("print('here')\nwhile True: pass")
    session.wait_for_output("here\n")
    session.interrupt()
    assert session.finish(started).ended == "interrupted"


def test_a_handler_that_raises_does_not_end_the_session(session: Session) -> None:
    session.execute(
        "import signal\ndef angry(*_): raise RuntimeError('from a handler')\nsignal.signal(signal.SIGALRM, angry);"
    )
    for _ in range(20):
        os.kill(session.pid, signal.SIGALRM)
        assert session.execute("1").ended in ("ok", "error")
    started = session.start("print('here')\nwhile True: pass")
    session.wait_for_output("here\n")
    os.kill(session.pid, signal.SIGALRM)
    assert "from a handler" in session.finish(started).stderr


def test_signals_that_the_program_blocks_stay_blocked(session: Session) -> None:
    session.execute("import signal\nx = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])")
    assert session.execute("signal.pthread_sigmask(signal.SIG_BLOCK, []) == {signal.SIGUSR1}").values == ["True"]


@pytest.mark.parametrize(
    "source",
    [
        "count = count + 1",
        "count",
        "display(bytes(200_000))",
        "for _ in range(200): display(1)",
        "await asyncio.sleep(0.001, 1)",
        "print('x' * 10_000)",
        "1 / 0",
        "import sys; sys.exit(3)",
    ],
)
def test_a_storm_of_interrupts_breaks_nothing(session: Session, source: str) -> None:
    session.execute("import asyncio\ncount = 0\nkept = object()\nidentity = id(kept)")
    over = threading.Event()
    storm = threading.Thread(target=_interrupt_until, args=(session.pid, over))
    storm.start()
    try:
        ends = {session.execute(source).ended for _ in range(STORM_RUNS)}
    finally:
        over.set()
        storm.join()
    assert ends <= {"ok", "error", "exit", "interrupted"}
    assert session.execute("id(kept) == identity and isinstance(count, int)").values == ["True"]


def _interrupt_until(pid: int, over: threading.Event) -> None:
    chance = random.Random(1)
    while not over.wait(chance.random() / 500):
        for _ in range(chance.randrange(4)):
            os.kill(pid, signal.SIGINT)
