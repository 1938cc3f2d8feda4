"""Bad input to `hood run`: one clear message, the right exit code, and nothing left behind (`hood` checks that)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from live.cli_host import hood

pytestmark = pytest.mark.usefixtures("way")


def refusal(*arguments: str | Path, code: int = 2) -> str:
    """The one message of a command that was refused."""
    done = hood("run", *arguments)
    assert (done.returncode, done.stdout) == (code, b"")
    said = done.stderr.decode()
    assert said.startswith("hood: ")
    assert "Traceback" not in said
    return said


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "x.py"
    path.write_text("print(1)\n")
    return path


def test_source_with_a_nul_byte(script: Path) -> None:
    script.write_bytes(b"print(1)\nx = '\0'\n")
    assert "NUL byte in line 2" in refusal(script)


def test_five_megabytes_of_source_work(script: Path) -> None:
    script.write_text("# a line of a large file\n" * 200_000 + "print('end')\n")
    assert script.stat().st_size >= 5_000_000
    assert hood("run", script).stdout == b"end\n"


@pytest.mark.plain_only("a device may be another one for each process")
def test_source_without_end(script: Path) -> None:
    assert "the source is" in refusal("/dev/zero")


def test_source_that_is_not_utf_8_fails_as_under_plain_python(script: Path) -> None:
    script.write_bytes(b"print('\xff')\n")
    done = hood("run", script)
    assert done.returncode == 1
    assert b"SyntaxError" in done.stderr
    assert b"hood:" not in done.stderr


def test_an_unknown_language(script: Path) -> None:
    assert "unknown language 'cobol'; available: python, sh, bash" in refusal("--language", "cobol", script)


def test_a_missing_file() -> None:
    assert "cannot read 'nowhere.py': there is no such file" in refusal("nowhere.py")


def test_a_folder_as_the_file(tmp_path: Path) -> None:
    assert "it is a folder" in refusal(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read(script: Path) -> None:
    script.chmod(0)
    assert "Permission denied" in refusal(script)


@pytest.mark.some_parameters
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--mount", "/nowhere:/data"], "mount source '/nowhere' cannot be used"),
        (["--mount", "/usr:/proc/x"], "--mount /usr:/proc/x: target: is inside /proc"),
        (["--mount", "/usr"], "must be SRC:DST"),
        (["--memory", "0"], "--memory: a size is"),
        (["--cpus", "0"], "--cpus: must be from 0.01"),
        (["--timeout", "0"], "--timeout: a duration goes from"),
        (["--timeout", "-1"], "--timeout: a duration goes from"),
        (["--timeout=-5s"], "--timeout: a duration goes from"),
        (["--env", "=x"], "has no name"),
        (["--env", "NOT_SET_ANYWHERE"], "no such variable in your environment"),
        (["--polcy", "x"], "unknown option --polcy"),
        (["-c", "print(1)"], "both"),
        (["--backend", "moon"], "--backend: must be one of"),
        (["--policy", "nowhere.yaml"], "nowhere.yaml: cannot be read: there is no such file"),
    ],
)
def test_a_bad_option(arguments: list[str], reason: str, script: Path) -> None:
    said = refusal(*arguments, script)
    assert reason in said
    assert said.count("\n") == 1


def test_neither_file_nor_code() -> None:
    assert "nothing to run" in refusal()


def test_a_loop_of_symbolic_links_as_mount_source(tmp_path: Path, script: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    said = refusal("--mount", f"{tmp_path}/a:/data", script)
    assert f"mount source '{tmp_path}/a' cannot be used" in said


@pytest.mark.some_parameters
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- a\n- b\n", "policy.yaml:1: the file holds a list"),
        ("resources:\n\tmemory: 1G\n", "policy.yaml:2: contains a tab where YAML expects spaces"),
        ("resources: {memory: 0}\n", "policy.yaml:1: resources.memory: a size is"),
        ("resources: {timeout: -1}\n", "policy.yaml:1: resources.timeout: a duration goes from"),
        ("resources: {memroy: 1G}\n", "did you mean memory?"),
    ],
)
def test_a_bad_policy(text: str, reason: str, tmp_path: Path, script: Path) -> None:
    (tmp_path / "policy.yaml").write_text(text)
    assert reason in refusal("--policy", tmp_path / "policy.yaml", script)


def test_a_policy_that_this_backend_cannot_enforce(tmp_path: Path, script: Path) -> None:
    (tmp_path / "policy.yaml").write_text("backend: native\nimage: debian:13\n")
    said = refusal("--policy", tmp_path / "policy.yaml", script, code=126)
    assert "image: not enforced by backend native" in said


def test_a_name_that_would_write_to_the_terminal(tmp_path: Path) -> None:
    assert "\x1b" not in refusal(tmp_path / "\x1b[2J.py")
