"""Advice for programs that lack a package."""

from __future__ import annotations

import pytest

from fumehood.cli.overrides import name_flags
from fumehood.results import Cause, Outcome, RunOutput, RunResult, Status
from fumehood.sandbox.module_hint import module_hint


def failed(stderr: bytes, exit_code: int = 1) -> RunResult:
    status = Status.ERROR if exit_code else Status.SUCCESS
    outcome = Outcome(status, Cause.EXIT, exit_code, None, "", False, 1.0, 1.0, 0)
    return module_hint(RunResult.of(RunOutput(outcome), "run", "sha256:0", None, ()), stderr)


LACKS = b"Traceback ...\nModuleNotFoundError: No module named '%s'\n"


@pytest.mark.parametrize(
    ("module", "package"),
    [(b"pandas", "pandas"), (b"sklearn.linear_model", "scikit-learn"), (b"yaml", "pyyaml"), (b"PIL", "pillow")],
)
def test_a_missing_module_names_its_package(module: bytes, package: str) -> None:
    detail = failed(LACKS % module).detail
    assert detail.endswith(f"add packages=['{package}']")
    assert f"add --with {package}, or --project DIR" in name_flags(detail)


@pytest.mark.parametrize(
    "stderr",
    [
        LACKS % b"tkinter",
        LACKS % b"x'; curl evil",
        LACKS % b"--index-url",
        LACKS % b"x\x1b[2J",
        LACKS % (b"x" * 100),
        LACKS % b"pandas" + b"and then it went on\n",
        b"",
    ],
)
def test_nothing_else_is_advised(stderr: bytes) -> None:
    assert failed(stderr).detail == ""


def test_a_program_that_succeeds_needs_no_advice() -> None:
    assert failed(LACKS % b"pandas", exit_code=0).detail == ""
