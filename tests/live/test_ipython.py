"""Sessions of an environment that has IPython: the same results as in the plain shell, and magics on top."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fumehood import Policy, Sandbox, Session, Status


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(Policy(environment={"packages": ["ipython"]}, resources={"memory": "1G"})) as opened:
        yield opened


@pytest.fixture
def session(box: Sandbox) -> Iterator[Session]:
    with box.session() as opened:
        yield opened


def text_of(session: Session, source: str) -> object:
    return session.run(source).displays[-1].data["text/plain"]


def test_it_is_ipython(session: Session) -> None:
    assert session.run("get_ipython().run_line_magic").ok
    assert session.run("!echo from a shell").stdout == "from a shell\n"
    assert session.run("%who_ls").displays[0].data["text/plain"] == "[]"
    assert text_of(session, "41 + 1") == "42"
    assert text_of(session, "Out[4] * 2") == "84"


def test_state_failures_and_endings_are_as_in_the_plain_shell(session: Session) -> None:
    session.run("x = 1")
    failed = session.run("1 / 0")
    assert (failed.status, failed.exit_code) == (Status.ERROR, 1)
    assert failed.stderr.rstrip().endswith("ZeroDivisionError: division by zero")
    assert session.run("import sys\nsys.exit(3)").exit_code == 3
    assert session.run("exit()").exit_code == 0
    assert session.run("while True: pass", timeout=0.5).status is Status.TIMEOUT
    after = session.run("x")
    assert (after.displays[0].data["text/plain"], after.restarted) == ("1", False)


def test_rich_results_go_through_its_formatters(session: Session) -> None:
    source = "from IPython.display import HTML, Markdown, display\ndisplay(HTML('<i>x</i>'))\nMarkdown('# y')"
    first, second = session.run(source).displays
    assert first.data["text/html"] == "<i>x</i>"
    assert second.data["text/markdown"] == "# y"


def test_awaiting_works_at_the_top(session: Session) -> None:
    assert text_of(session, "import asyncio\nawait asyncio.sleep(0, 'slept')") == "'slept'"


def test_nothing_of_it_is_left_in_the_workspace(session: Session) -> None:
    session.run("%config")
    assert text_of(session, "import os\nos.listdir('/workspace')") == "[]"


def test_runs_that_are_not_in_a_session_are_plain_python(box: Sandbox) -> None:
    assert "NameError" in box.run("get_ipython()").stderr
