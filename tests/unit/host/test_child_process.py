"""A build's child is heard line by line, and nothing of it outlives the build."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest
from live.traces import is_alive, wait_until

from fumehood.host.child_process import Ended, run_child

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
    wait_until_dead(seen)


def test_a_relative_that_stays_does_not_hold_us_up() -> None:
    family = (
        "import os, sys, signal\nchild = os.fork()\nif child == 0:\n    signal.pause()\nprint(child, file=sys.stderr)"
    )
    seen: list[int] = []
    assert run(family, lambda line: seen.append(int(line))).code == 0
    assert len(seen) == 1
    wait_until_dead(seen)


def wait_until_dead(pids: list[int]) -> None:
    """Killed they are; when the kernel has taken the last one down is for it to say."""
    wait_until(lambda: not any(map(is_alive, pids)), 10.0, f"{pids} have ended")
