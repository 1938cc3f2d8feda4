"""A build's child is heard line by line, and nothing of it outlives the build."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import pytest
from live.traces import descendants, is_alive

from fumehood.environments.children import Ended, run_child

PYTHON = os.path.realpath(sys.executable)


def run(program: str, on_line: Callable[[str], None], heartbeat: Callable[[], None] = lambda: None) -> Ended:
    with open(os.devnull) as held:
        return run_child(
            [PYTHON, "-I", "-S", "-c", program],
            python=PYTHON,
            variables={"GREETING": "hi"},
            held=held.fileno(),
            on_line=on_line,
            heartbeat=heartbeat,
        )


def test_lines_arrive_and_the_exit_code_is_known() -> None:
    lines: list[str] = []
    ended = run("import sys; print('a\\n  b\\n\\nlast', end='', file=sys.stderr); sys.exit(3)", lines.append)
    assert (lines, ended.code, ended.said) == (["a", "b"], 3, "a\n  b\n\nlast")


def test_the_child_has_our_variables_the_root_folder_and_a_session_of_its_own() -> None:
    program = "import os, sys; print(dict(os.environ), os.getcwd(), os.getsid(0) == os.getpid(), file=sys.stderr)"
    said = run(program, lambda line: None).said
    assert "'GREETING': 'hi'" in said
    assert "HOME" not in said
    assert said.endswith("/ True\n")


def test_it_ends_with_its_children_when_the_heartbeat_says_so() -> None:
    family = "import os, sys, signal\nos.fork()\nprint(os.getpid(), file=sys.stderr, flush=True)\nsignal.pause()"
    seen: list[int] = []

    def heartbeat() -> None:
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(family, lambda line: seen.append(int(line)), heartbeat)
    # Killed they are; when the kernel has taken the last one down is for it to say.
    for _ in range(200):
        if not any(map(is_alive, seen)):
            return
        time.sleep(0.05)
    raise AssertionError(f"still there: {seen}")


def test_a_relative_that_stays_does_not_hold_us_up() -> None:
    family = "import os, sys, signal\nif os.fork() == 0:\n    signal.pause()\nprint('done', file=sys.stderr)"
    before = descendants(os.getpid())
    assert run(family, lambda line: None).code == 0
    assert descendants(os.getpid()) == before
