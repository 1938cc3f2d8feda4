"""The sandbox runs a program as plain `python3 main.py` would: same exit code, same output, same errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract.plain_python import Behaviour, run_plainly
from contract.programs import ENDING, TRACEBACKS
from contract.programs_at_exit import AT_EXIT, PATCHED, STACK_WALKS, STATE

from fumehood import Sandbox

STDIN = "first line\nzwölf\n".encode()
PROGRAMS = {**ENDING, **TRACEBACKS, **STATE, **AT_EXIT}


@pytest.mark.some_parameters
@pytest.mark.parametrize("source", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_a_program_behaves_as_under_plain_python(box: Sandbox, tmp_path: Path, source: str) -> None:
    expected = run_plainly(tmp_path, source, stdin=STDIN)
    assert Behaviour.of(box.run(source, stdin=STDIN)) == expected


@pytest.mark.some_parameters
@pytest.mark.parametrize("source", PATCHED.values(), ids=PATCHED.keys())
def test_a_program_that_patches_the_interpreter_ends_as_under_plain_python(
    box: Sandbox, tmp_path: Path, source: str
) -> None:
    assert Behaviour.of(box.run(source)) == run_plainly(tmp_path, source)


@pytest.mark.parametrize("source", STACK_WALKS.values(), ids=STACK_WALKS.keys())
def test_a_walk_over_the_stack_ends_as_under_plain_python_though_it_sees_more(
    box: Sandbox, tmp_path: Path, source: str
) -> None:
    assert box.run(source).exit_code == run_plainly(tmp_path, source).exit_code


@pytest.mark.parametrize(
    ("args", "source"),
    [
        (("a b", "", "--flag", "ünï", "*"), "import sys\nprint(sys.argv[1:])"),
        (("-c", "--", "-"), "import argparse, sys\nprint(sys.argv[1:])"),
        (("--help",), "import argparse\np = argparse.ArgumentParser()\np.add_argument('--n')\np.parse_args()"),
        (("--wrong",), "import argparse\nargparse.ArgumentParser().parse_args()"),
    ],
)
def test_arguments_arrive_as_under_plain_python(
    box: Sandbox, tmp_path: Path, args: tuple[str, ...], source: str
) -> None:
    assert Behaviour.of(box.run(source, args=args)) == run_plainly(tmp_path, source, args=args)


@pytest.mark.parametrize(
    ("env", "source"),
    [
        ({"TZ": "XYZ-5:30"}, "import time\nprint(time.strftime('%H:%M %Z', time.localtime(0)), time.timezone)"),
        ({"PYTHONPATH": "/some/folder"}, "import sys\nprint('/some/folder' in sys.path)"),
        (
            {"NAME": "välue with spaces"},
            "import os\nprint(os.environ['NAME'], os.getenv('NAME'), os.environb[b'NAME'])",
        ),
        ({"EMPTY": ""}, "import os\nprint(repr(os.environ['EMPTY']))"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_variables_work_as_under_plain_python(box: Sandbox, tmp_path: Path, env: dict[str, str], source: str) -> None:
    assert Behaviour.of(box.run(source, env=env)) == run_plainly(tmp_path, source, env=env)
