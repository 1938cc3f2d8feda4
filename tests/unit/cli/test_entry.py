"""The command itself: help, version, mistakes, and what becomes of exceptions."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fumehood
from fumehood.cli import entry, exitcodes
from fumehood.cli.commands import COMMANDS, Command
from fumehood.errors import DeniedError, FumehoodError, PolicyError, SandboxError, UsageError
from fumehood.results import Cause, RunResult, Status


def result(status: Status, cause: Cause, exit_code: int) -> RunResult:
    return RunResult(status, cause, exit_code, b"", b"", False, 1.0, 1.0, 1, "run_1", "sha256:0")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_is_short_and_has_examples(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run_command(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 34
    assert all(len(line) <= 80 for line in lines)
    assert any(line.startswith("  hood run -c") for line in lines)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_explains_itself_within_80_columns(
    command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert entry.run_command([command.name, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"usage: hood {command.name}")
    assert all(len(line) <= 80 for line in lines)


def test_help_knows_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("help", "--help", "-h"):
        assert entry.run_command([word, "run"]) == 0
        assert capsys.readouterr().out.startswith("usage: hood run")


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run_command(["--version"]) == 0
    assert capsys.readouterr().out == f"hood {fumehood.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ps"], "hood: unknown command 'ps' (here it is `hood sandbox list`); see `hood --help`\n"),
        (["run", "-p", "80:80", "x"], "hood: unknown option -p (here it is --publish PORT); see `hood run --help`\n"),
        (
            ["run", "--packages=six", "x"],
            "hood: unknown option --packages (here it is --with PACKAGE, or a policy with",
        ),
        (["run", "--privileged", "x"], "hood: unknown option --privileged (here it is nothing: programs have no"),
        (["rn"], "hood: unknown command 'rn' (did you mean 'run'?); see `hood --help`\n"),
        (["--verbose"], "hood: unknown option '--verbose'"),
        ([__file__], f"hood: unknown command {__file__!r} (did you mean `hood run {__file__}`?)"),
        (["env"], "hood: the following arguments are required: VERB, one of list, build, prune; see `hood env"),
        (["run", "--polcy", "x"], "hood: unknown option --polcy (did you mean '--policy'?); see `hood run --help`\n"),
        (
            ["run", "--frob", "x.py"],
            "hood: unknown option --frob (the program's own options come after FILE, or after `--`)",
        ),
        (["run", "-c", "1", "-c", "2"], "hood: -c is given twice; give it once"),
        (["run", "--memory", "1G", "--memory=2G", "x.py"], "hood: --memory is given twice"),
        (["run", "--session", "x.py", "a"], "hood: a session has no arguments"),
        (["audit", "shwo"], "hood: argument VERB: unknown 'shwo' (did you mean 'show'?)"),
        (["audit", "tail", "--jsn"], "hood: unknown option --jsn (did you mean '--json'?); see `hood audit tail"),
        (["help", "rum"], "hood: unknown command 'rum' (did you mean 'run'?)"),
        (["run", "--cpus", "many", "x.py"], "hood: argument --cpus: invalid float value: 'many'"),
        (["run"], "hood: nothing to run"),
        (["policy"], "hood: the following arguments are required: VERB, one of check, show, diff, "),
        (["gc", "now"], "hood: unrecognized arguments: now; see `hood gc --help`\n"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert entry.run_command(arguments) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(said)


def failing(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    def fail(arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(entry, "_dispatch", fail)
    return entry.run_command([])


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("no"), 2, "hood: no\n"),
        (PolicyError(["a: 1", "b: 2"]), 2, "hood: a: 1\n      b: 2\n"),
        (DeniedError("not allowed"), 126, "hood: not allowed\n"),
        (SandboxError("it broke"), 125, "hood: it broke\n"),
        (FumehoodError("\x1b[2Jboo"), 125, "hood: ⟨U+001B⟩[2Jboo\n"),
        (ZeroDivisionError("x"), 125, "hood: internal error: ZeroDivisionError: x. Set HOOD_DEBUG=1"),
        (OSError(28, "No space"), 125, "hood: system error: [Errno 28] No space. Set HOOD_DEBUG=1"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 141, ""),
    ],
)
def test_an_exception_is_one_message_and_an_exit_code(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert failing(error, monkeypatch) == code
    assert capfd.readouterr().err.startswith(said)


def test_a_traceback_is_shown_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOD_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        failing(ZeroDivisionError(), monkeypatch)


@pytest.mark.parametrize(
    ("status", "cause", "own", "expected"),
    [
        (Status.SUCCESS, Cause.EXIT, 0, 0),
        (Status.ERROR, Cause.EXIT, 3, 3),
        (Status.ERROR, Cause.SIGNAL, 139, 139),
        (Status.ERROR, Cause.LOST, 125, 125),
        (Status.TIMEOUT, Cause.WALL_TIME, 1, 124),
        (Status.TIMEOUT, Cause.CPU_TIME, 1, 124),
        (Status.RESOURCE_EXCEEDED, Cause.MEMORY, 1, 137),
        (Status.RESOURCE_EXCEEDED, Cause.DISK, 1, 123),
        (Status.RESOURCE_EXCEEDED, Cause.OUTPUT, 0, 123),
        (Status.DENIED, Cause.POLICY, 0, 126),
        (Status.CANCELLED, Cause.CANCELLED, 130, 130),
    ],
)
def test_a_result_becomes_an_exit_code(status: Status, cause: Cause, own: int, expected: int) -> None:
    assert exitcodes.for_result(result(status, cause, own)) == expected


def test_asking_for_the_version_imports_nothing_heavy() -> None:
    program = "import sys; from fumehood.cli.entry import run_command; run_command(['--version'])\n"
    program += "print([name for name in ('pydantic', 'anyio', 'asyncio', 'yaml') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "[]"
