"""What only IPython's shell can do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from unit.guest.program.session.talking import SITE_PACKAGES, Session

from fumehood.guest.contract import ipython


@pytest.mark.parametrize(
    ("source", "stdout"),
    [
        ("!echo from the shell", "from the shell\n"),
        ("x = 5\n!echo {x}", "5\n"),
        ("%%bash\necho in bash", "in bash\n"),
        ("%pwd\nprint('on')", "on\n"),
        ("%matplotlib inline", ""),
        ("get_ipython().system('echo again')", "again\n"),
    ],
)
def test_magics_write_to_the_programs_output(shell: Session, source: str, stdout: str) -> None:
    answer = shell.execute(source)
    assert (answer.stdout, answer.stderr, answer.ended) == (stdout, "", "ok")


def test_time_can_be_taken(shell: Session) -> None:
    assert "per loop" in shell.execute("%timeit -n 1 -r 1 1 + 1").stdout


def test_output_of_commands_can_be_had(shell: Session) -> None:
    assert shell.execute("files = !echo one\nfiles").values == ["['one']"]


def test_help_is_a_display(shell: Session) -> None:
    assert "Return the number of items" in str(shell.execute("len?").values[0])


def test_results_have_the_numbers_of_their_runs(shell: Session) -> None:
    shell.execute("x = 1")
    shell.execute("'second'")
    assert shell.execute("Out[2], _2, In[2]").values == ["('second', 'second', \"'second'\")"]


def test_an_unknown_magic_is_an_error(shell: Session) -> None:
    answer = shell.execute("%no_such_magic")
    assert answer.ended == "error"
    assert "not found" in answer.stderr


@pytest.mark.parametrize("source", ["exit", "quit", "exit()"])
def test_leaving_takes_no_more_than_a_word(shell: Session, source: str) -> None:
    assert shell.execute(source).end == {"ended": "exit", "code": 0, "exhausted": ""}


def test_an_interrupt_ends_a_command_and_the_run(shell: Session) -> None:
    started = shell.start("!echo here; sleep 1000; echo on\nprint('and on')")
    shell.wait_for_output("here")
    answer = shell.finish_interrupted(started)
    assert (answer.ended, answer.stdout) == ("interrupted", "here\n")


def test_it_has_no_threads_and_leaves_no_files(shell: Session) -> None:
    shell.execute("1 + 1\n%history")
    assert len(os.listdir(f"/proc/{shell.pid}/task")) == 1
    assert os.listdir(shell.workspace) == []


def test_it_keeps_no_copy_of_the_output(shell: Session) -> None:
    shell.execute("print('x' * 1000)\ndisplay(1)\n2")
    assert shell.execute("len(get_ipython().history_manager.outputs)").values == ["0"]


def test_one_that_does_not_work_is_replaced_by_the_plain_shell(tmp_path: Path) -> None:
    broken = tmp_path / "packages" / "IPython"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise RuntimeError('broken')")
    with Session(tmp_path, packages=[str(broken.parent)]) as session:
        assert session.shell == "plain"
        assert "RuntimeError: broken" in session.execute("").stderr


def test_it_can_be_imported_ahead_of_time(tmp_path: Path) -> None:
    with Session(tmp_path, packages=[SITE_PACKAGES], preload=ipython.PRELOAD) as session:
        assert session.shell == "ipython"
        assert session.execute("6 * 7").values == ["42"]
