"""Completion, as a real bash carries it out."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from requirements import require

from fumehood.backends.languages import LANGUAGES
from fumehood.cli.commands import COMMANDS
from fumehood.cli.entry import run_command

ASK = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _hood; printf "%s\\n" "${COMPREPLY[@]}"'


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str]) -> str:
    require(shutil.which("bash"), "bash is not installed")
    assert run_command(["completion", "bash"]) == 0
    return capsys.readouterr().out


def complete(script: str, *words: str, folder: Path | None = None) -> list[str]:
    command = ["bash", "-euc", script + ASK, "bash", "hood", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_are_completed(script: str) -> None:
    assert complete(script, "") == [*(command.name for command in COMMANDS), "--help", "--version"]
    assert complete(script, "doc") == ["doctor"]


def test_options_and_their_values_are_completed(script: str) -> None:
    assert complete(script, "run", "--me") == ["--memory"]
    assert complete(script, "run", "--language", "") == [*LANGUAGES]
    assert complete(script, "completion", "z") == ["zsh"]


def test_a_policy_is_completed_by_name_and_by_file(script: str, tmp_path: Path) -> None:
    (tmp_path / "wide.yaml").touch()
    for command in (["run"], ["shell"], ["mcp"], ["agent", "run"]):
        assert complete(script, *command, "--policy", "w", folder=tmp_path) == ["web-reader", "wide.yaml"]
        assert complete(script, *command, "--no-") == ["--no-config"]


def test_verbs_of_a_command_are_completed(script: str) -> None:
    assert complete(script, "policy", "s") == ["show", "schema"]
    assert complete(script, "policy", "check", "--") == ["--help", "--strict"]


def test_files_are_completed_where_files_belong(script: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").touch()
    assert complete(script, "run", "scr", folder=tmp_path) == ["script.py"]
    assert complete(script, "run", "--policy", "scr", folder=tmp_path) == ["script.py"]
    assert complete(script, "policy", "check", "scr", folder=tmp_path) == ["script.py"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_of_another_shell_is_valid(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_command(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    assert "doctor" in script.read_text()
    if shutil.which(shell):
        assert subprocess.run([shell, "-n", script]).returncode == 0
