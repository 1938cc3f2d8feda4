"""What a program may do to its own process without taking the session with it."""

from __future__ import annotations

import os
import textwrap

import pytest
from unit.guest.program.session.talking import Session, SessionEndedError


def alive(session: Session) -> None:
    answer = session.execute("print('alive')\n'and well'")
    assert (answer.stdout, answer.values, answer.ended) == ("alive\n", ["'and well'"], "ok")


@pytest.mark.some_parameters
@pytest.mark.parametrize(
    "source",
    [
        "import sys\nsys.stdout.close()",
        "import sys\nsys.stderr.close()",
        "import sys\nsys.__stdout__.close()\nsys.stdout.close()",
        "import sys\nsys.stdin.close()",
        "import sys\nsys.stdout = None",
        "import sys\ndel sys.stdout, sys.stderr, sys.stdin",
        "import os\nos.close(0)",
        "import sys\nsys.settrace(lambda *_: 1 / 0)\ndef f(): pass\nf()",
        "import sys\nsys.setprofile(lambda *_: 1 / 0)",
        "import sys\nsys.setrecursionlimit(200)\ndef f(): f()\nf()",
        "import gc\ngc.disable()",
        "import threading\nthreading.excepthook = None\nthreading.Thread(target=lambda: 1 / 0).start()",
        "import os\nos.chdir('/')",
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN);",
        "import os\nos.environ.clear()",
        "import builtins\ndel builtins.print\nfrom io import open as builtins_open",
    ],
)
def test_the_session_goes_on(session: Session, source: str) -> None:
    session.execute(source)
    session.execute(
        "import builtins, sys\nbuiltins.print = lambda *x: sys.stdout.write(*x) and sys.stdout.write('\\n')"
    )
    alive(session)


def test_a_closed_descriptor_is_not_taken_by_the_next_file(session: Session) -> None:
    session.execute("import os\nos.close(1)")
    session.execute("stream = open('file.txt', 'w')\nprint('lost')")
    assert session.execute("stream.fileno() > 2").values == ["True"]
    assert (session.workspace / "file.txt").read_text() == ""


def test_a_stream_that_was_replaced_stays_so(session: Session) -> None:
    session.execute("import io, sys\nreal, sys.stdout = sys.stdout, io.StringIO()")
    assert session.execute("print('kept')").stdout == ""
    assert session.execute("text, sys.stdout = sys.stdout.getvalue(), real\nprint(text)").stdout == "kept\n\n"


def test_redirected_output_stays_so(session: Session) -> None:
    session.execute("import os\nsaved = os.dup(1)\nos.dup2(os.open('out.txt', os.O_CREAT | os.O_WRONLY), 1);")
    assert session.execute("print('to the file')").stdout == ""
    assert session.execute("os.dup2(saved, 1)\nprint('back')").stdout == "back\n"
    assert (session.workspace / "out.txt").read_text() == "to the file\n"


def test_output_that_the_program_buffers_is_flushed(session: Session) -> None:
    session.execute("import sys\nsys.stdout = open(1, 'w', buffering=10_000, closefd=False)")
    assert session.execute("sys.stdout.write('buffered');").stdout == "buffered"


def test_a_program_may_have_its_own_displayhook(plain: Session) -> None:
    plain.execute("import sys\nsys.displayhook = lambda value: print('mine', value)")
    answer = plain.execute("5")
    assert (answer.displays, answer.stdout) == ([], "mine 5\n")


def test_a_fork_that_returns_twice_leaves_one_session(session: Session) -> None:
    session.execute("import os\nreading, writing = os.pipe()")
    answer = session.execute("child = os.fork()\nif child == 0: os.write(writing, b'child')\nchild > 0")
    assert "True" in answer.values
    assert session.execute("os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), os.read(reading, 9)").values == [
        "(0, b'child')"
    ]
    alive(session)


def test_what_a_forked_child_displays_is_printed(session: Session) -> None:
    source = """
        import os, sys
        child = os.fork()
        if child == 0:
            display("from the child")
            sys.exit(3)
        os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    """
    answer = session.execute(textwrap.dedent(source))
    assert (answer.values, answer.stdout) == (["3"], "'from the child'\n")


def test_a_forked_child_ends_with_its_own_error(session: Session) -> None:
    answer = session.execute(
        "import os\nchild = os.fork()\nif child == 0: raise ValueError('in the child')\n"
        "os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])"
    )
    assert answer.values == ["1"]
    assert "ValueError: in the child" in answer.stderr
    alive(session)


def test_the_conversation_is_not_inherited(session: Session) -> None:
    session.execute(
        "import os, subprocess\n"
        "def sockets():\n    return subprocess.getoutput(f'ls -l /proc/{os.getpid()}/fd').count('socket:')"
    )
    started = (
        "subprocess.run(['ls', '-l', '/proc/self/fd'], close_fds=False, capture_output=True).stdout.count(b'socket:')"
    )
    forked = "child = os.fork()\nif child == 0: os._exit(sockets())\nos.waitpid(child, 0)[1]"
    assert [session.execute(source).values for source in ("sockets()", started, forked)] == [["1"], ["0"], ["0"]]


def test_threads_go_on_between_runs(session: Session) -> None:
    session.execute(
        "import threading\ngo, gone = threading.Event(), threading.Event()\n"
        "def work():\n    go.wait()\n    print('from a thread')\n    gone.set()\nthreading.Thread(target=work).start()"
    )
    assert session.execute("go.set()\ngone.wait();").stdout == "from a thread\n"


def test_closing_every_descriptor_ends_the_session(session: Session) -> None:
    with pytest.raises(SessionEndedError):
        session.execute("import os\nos.closerange(0, 65536)")


def test_the_end_of_the_process_is_the_end_of_the_session(session: Session) -> None:
    with pytest.raises(SessionEndedError):
        session.execute("import os\nos._exit(3)")
    assert session.process.wait(60) == 3


def test_the_guest_is_out_of_sight(session: Session) -> None:
    assert session.execute("import sys\n[name for name in sys.modules if name.startswith('guest')]").values == ["[]"]


def test_nothing_is_left_in_the_workspace(session: Session) -> None:
    session.execute("1 + 1")
    assert os.listdir(session.workspace) == []
