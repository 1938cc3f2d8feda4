"""Run after run in one namespace: values, errors, endings, input. With IPython and without."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap

import pytest
from unit.guest.program.session.talking import Session


def test_state_lives_on_between_runs(session: Session) -> None:
    session.execute("import math\ndef double(x):\n    return 2 * x\nvalue = 20")
    assert session.execute("double(value) + math.floor(2.5)").values == ["42"]


@pytest.mark.some_parameters
@pytest.mark.parametrize(
    ("source", "values"),
    [
        ("1 + 1", ["2"]),
        ("x = 1", []),
        ("None", []),
        ("1\n2\n3", ["3"]),
        ("1;", []),
        ("(1);  # a comment", []),
        ("1 # ;", ["1"]),
        ("';'", ["';'"]),
        ("x = 5\nx", ["5"]),
        ("x = 5; x", ["5"]),
        ("for _ in range(3):\n    7", []),
        ("(1 +\n 2)", ["3"]),
        ("'\N{SNOWMAN}'", ["'\N{SNOWMAN}'"]),
        ("'\N{SNOWMAN}';", []),
        ("'''two\nlines'''\n", [r"'two\nlines'"]),
        ("\n\n4\n\n", ["4"]),
        ("", []),
        ("# nothing", []),
        ("__name__", ["'__main__'"]),
        ("'__file__' in globals()", ["False"]),
        ("display(1, 2)\ndisplay(3)\n4", ["1", "2", "3", "4"]),
    ],
)
def test_the_last_expression_is_displayed(session: Session, source: str, values: list[str]) -> None:
    answer = session.execute(source)
    assert (answer.values, answer.ended, answer.stdout, answer.stderr) == (values, "ok", "", "")


def test_the_last_value_has_a_name(session: Session) -> None:
    session.execute("6 * 7")
    session.execute("x = 1")
    assert session.execute("_ + 1").values == ["43"]


def test_output_has_arrived_when_the_run_is_done(session: Session) -> None:
    answer = session.execute("import os, sys\nprint('a')\nprint('b', file=sys.stderr)\nx = os.system('echo c')")
    assert (answer.stdout, answer.stderr) == ("a\nc\n", "b\n")


@pytest.mark.parametrize(
    ("source", "ended", "code", "stderr"),
    [
        ("raise SystemExit", "exit", 0, ""),
        ("import sys; sys.exit(3)", "exit", 3, ""),
        ("import sys; sys.exit('some words')", "exit", 1, "some words\n"),
        ("import sys; sys.exit(256 + 7)", "exit", 7, ""),
        ("exit(4)", "exit", 4, ""),
        ("quit()", "exit", 0, ""),
    ],
)
def test_leaving_ends_the_run_and_keeps_the_state(
    session: Session, source: str, ended: str, code: int, stderr: str
) -> None:
    session.execute("kept = 1")
    answer = session.execute(source)
    assert (answer.end, answer.stderr) == ({"ended": ended, "code": code, "exhausted": ""}, stderr)
    assert session.execute("kept").values == ["1"]


@pytest.mark.some_parameters
@pytest.mark.parametrize(
    ("source", "name", "exhausted"),
    [
        ("1 / 0", "ZeroDivisionError", ""),
        ("raise MemoryError", "MemoryError", "memory"),
        ("import errno\nraise OSError(errno.ENOSPC, 'full')", "OSError", "disk"),
        ('raise RuntimeError("can\'t start new thread")', "RuntimeError", "processes"),
        ("def f(): f()\nf()", "RecursionError", ""),
        ("x = = 1", "SyntaxError", ""),
        ("  x = 1\n y", "IndentationError", ""),
        ("return 1", "SyntaxError", ""),
        (b"\xff = 1", "SyntaxError", ""),
        ("# coding: utf-7\n# tidy +AAo-print('hidden')\nprint('shown')", "SyntaxError", ""),
        (b"# coding: latin-1\nprint('\xe9')", "SyntaxError", ""),
        ("class E(RuntimeError):\n    def __str__(self): raise OSError\nraise E", "E", ""),
        ("raise ExceptionGroup('several', [ValueError(1)])", "ValueError", ""),
    ],
)
def test_an_error_is_shown_and_the_state_is_kept(
    session: Session, source: str | bytes, name: str, exhausted: str
) -> None:
    session.execute("kept = 1")
    answer = session.execute(source)
    assert answer.end == {"ended": "error", "code": 1, "exhausted": exhausted}
    assert name in answer.stderr
    assert answer.stdout == ""
    assert "guest" not in answer.stderr
    assert session.execute("kept").values == ["1"]


def test_a_real_lack_of_memory_is_told(session: Session) -> None:
    session.execute("import resource\nresource.setrlimit(resource.RLIMIT_AS, (2**30, 2**40))")
    answer = session.execute("data = bytearray(2**31)")
    assert (answer.ended, answer.end["exhausted"]) == ("error", "memory")
    assert session.execute("1").values == ["1"]


FAILING_PROGRAMS = [
    "def f(x):\n    return 1 / x\n\nf(0)\n",
    "try:\n    {}['a']\nexcept KeyError:\n    int('x')\n",
    "try:\n    {}['a']\nexcept KeyError as error:\n    raise ValueError('late') from error\n",
    "def f(n):\n    f(n + 1)\nf(0)\n",
    "import json\njson.loads('{')\n",
    "x = (1 +\n",
    "x = = 1\n",
    "def f():\n    return 1\n  x\n",
    "if True:\n    return 5\n",
    "raise ExceptionGroup('several', [ValueError(1), TypeError(2)])\n",
    "error = ValueError('noted')\nerror.add_note('a note')\nraise error\n",
    "raise KeyboardInterrupt\n",
    "assert 1 == 2, 'unequal'\n",
    "async def f():\n    raise ValueError(1)\nf().send(None)\n",
]


@pytest.mark.some_parameters
@pytest.mark.parametrize("source", FAILING_PROGRAMS)
def test_tracebacks_are_those_of_plain_python(plain: Session, source: str) -> None:
    script = plain.scratch / "script.py"
    script.write_text(source)
    expected = subprocess.run([sys.executable, "-I", script], capture_output=True, text=True).stderr
    # How deep a recursion goes depends on the frames below, which nobody sees.
    stderr, expected = (
        re.sub(r"repeated \d+ more", "repeated", text) for text in (plain.execute(source).stderr, expected)
    )
    assert stderr == expected.replace(str(script), "<run 1>")


def test_tracebacks_show_the_lines_of_earlier_runs(session: Session) -> None:
    session.execute("def first():\n    return 1 / 0  # in the first run")
    session.execute("def second():\n    return first()  # in the second run")
    stderr = session.execute("second()").stderr
    assert "# in the first run" in stderr
    assert "# in the second run" in stderr


def test_the_source_of_a_function_can_be_had(session: Session) -> None:
    session.execute("def f():\n    return 'here'")
    answer = session.execute("import inspect\nprint(inspect.getsource(f))")
    assert answer.stdout == "def f():\n    return 'here'\n\n"


def test_the_program_can_show_its_own_errors(plain: Session) -> None:
    plain.execute("import sys\nsys.excepthook = lambda kind, error, frames: print('mine:', error)")
    answer = plain.execute("1 / 0")
    assert (answer.ended, answer.stdout, answer.stderr) == ("error", "mine: division by zero\n", "")


def test_a_warning_is_shown_in_each_run_that_gives_it(session: Session) -> None:
    for _ in range(2):
        assert "UserWarning: careful" in session.execute("import warnings\nwarnings.warn('careful')").stderr


def test_a_future_import_holds_for_later_runs(session: Session) -> None:
    session.execute("from __future__ import annotations")
    assert session.execute("def f(x: unknown): pass\nf.__annotations__").values == ["{'x': 'unknown'}"]


def test_input_is_given_for_each_run(session: Session) -> None:
    assert session.execute("[input(), input()]", b"one\ntwo\n").values == ["['one', 'two']"]
    answer = session.execute("import sys\nrest = sys.stdin.read()\nprint(rest)\ninput()", b"three\n")
    assert (answer.stdout, answer.ended) == ("three\n\n", "error")
    assert "EOFError" in answer.stderr
    assert "EOFError" in session.execute("input()").stderr


def test_child_processes_inherit_the_input(session: Session) -> None:
    data = b"x" * 1_000_000
    assert session.execute("import os\nx = os.system('wc -c')", data).stdout.strip() == "1000000"
    assert session.execute("x = os.system('wc -c')").stdout.strip() == "0"


def test_functions_of_a_run_work_in_child_processes(session: Session) -> None:
    answer = session.execute(
        textwrap.dedent("""
            import multiprocessing
            def square(x):
                return x * x
            with multiprocessing.get_context("fork").Pool(2) as pool:
                squares = pool.map(square, range(4))
            squares
        """)
    )
    assert (answer.values, answer.stderr) == (["[0, 1, 4, 9]"], "")


def test_objects_of_a_run_can_be_pickled(session: Session) -> None:
    session.execute("import pickle\nclass Point:\n    x = 3")
    assert session.execute("pickle.loads(pickle.dumps(Point())).x").values == ["3"]


@pytest.mark.parametrize(
    ("source", "values"),
    [
        ("await asyncio.sleep(0, 5)", ["5"]),
        ("x = await asyncio.sleep(0, 6)\nx", ["6"]),
        ("async with asyncio.timeout(60):\n    x = 7\nx", ["7"]),
        ("[x async for x in count(3)]", ["[0, 1, 2]"]),
        ("asyncio.run(asyncio.sleep(0, 8))", ["8"]),
        ("await asyncio.sleep(0, 9);", []),
    ],
)
def test_await_works_at_the_top_level(session: Session, source: str, values: list[str]) -> None:
    session.execute("import asyncio\nasync def count(n):\n    for i in range(n):\n        yield i")
    for _ in range(2):
        answer = session.execute(source)
        assert (answer.values, answer.stderr, answer.ended) == (values, "", "ok")


def test_the_event_loop_lives_on(session: Session) -> None:
    session.execute(
        "import asyncio\nqueue = asyncio.Queue()\ntask = asyncio.create_task(queue.get())\nawait asyncio.sleep(0)"
    )
    assert session.execute("queue.put_nowait('later')\nawait task").values == ["'later'"]


def test_an_error_in_what_is_awaited_is_shown_without_our_frames(plain: Session) -> None:
    plain.execute("async def fail():\n    1 / 0")
    stderr = plain.execute("await fail()").stderr
    assert stderr.startswith(
        'Traceback (most recent call last):\n  File "<run 2>", line 1, in <module>\n    await fail()\n'
    )
    assert "asyncio" not in stderr


def test_exit_functions_are_called_when_the_host_hangs_up(session: Session) -> None:
    session.execute("import atexit\natexit.register(print, 'goodbye');")
    assert session.close() == (0, "goodbye\n", "")
