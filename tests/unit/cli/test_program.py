"""Which program `hood run` runs, and in which language."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fumehood.cli.program import check_program, read_program
from fumehood.errors import UsageError


@pytest.mark.parametrize(
    ("name", "language"),
    [
        *(("x.py", "python"), ("x.sh", "sh"), ("x.BASH", "bash"), ("x.mjs", "javascript"), ("x.cc", "c++")),
        *(("x.rs", "rust"), ("x", "python")),
    ],
)
def test_the_suffix_decides_the_language(name: str, language: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\xff\n")
    program = read_program(str(tmp_path / name), None, None)
    assert (program.language, program.name, program.code) == (language, name, b"\xff\n")


@pytest.mark.parametrize(
    ("line", "language"),
    [
        ("#!/bin/sh", "sh"),
        ("#!/usr/bin/env bash", "bash"),
        ("#!/usr/bin/env -S A=1 node --no-warnings", "javascript"),
        ("#!/usr/bin/python3.11 -I", "python"),
    ],
)
@pytest.mark.parametrize("name", ["x", "x.txt"])
def test_the_first_line_decides_where_the_suffix_does_not(name: str, line: str, language: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(f"{line}\n")
    assert read_program(str(tmp_path / name), None, None).language == language


@pytest.mark.parametrize(
    ("name", "source", "reason"),
    [
        ("x.csv", "a,b", "is data, not a program; show it to one with --mount"),
        ("x.txt", "1", "no language has the suffix .txt; say which with --language (known: .py .sh"),
        ("x", "#!/usr/bin/perl\n", "asks for '/usr/bin/perl', which is not a language here; use --language"),
        ("x", "#!\n", "asks for '', which is not a language here"),
    ],
)
def test_what_is_not_known_to_be_a_program_is_not_run_as_python(
    name: str, source: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(source)
    with pytest.raises(UsageError) as caught:
        read_program(str(tmp_path / name), None, None)
    assert reason in str(caught.value)


def test_a_given_language_wins_over_the_suffix(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("echo hello")
    assert read_program(str(tmp_path / "x.py"), None, "sh").language == "sh"


def test_code_from_the_command_line_keeps_its_bytes() -> None:
    assert read_program(None, os.fsdecode(b"print('\xff')"), None).code == b"print('\xff')"


def test_a_pipe_can_be_the_file() -> None:
    read, write = os.pipe()
    os.write(write, b"print(1)")
    os.close(write)
    try:
        assert read_program(f"/dev/fd/{read}", None, None).code == b"print(1)"
    finally:
        os.close(read)


@pytest.mark.parametrize(
    ("file", "code", "language", "reason"),
    [
        (None, None, None, "nothing to run"),
        ("x.py", "print(1)", None, "both 'x.py' and -c CODE are given"),
        ("/nowhere/x.py", None, None, "cannot read '/nowhere/x.py': there is no such file"),
        ("/usr", None, None, "cannot read '/usr': it is a folder"),
        ("/dev/null/x", None, None, "Not a directory"),
        (None, "1", "cobol", "unknown language 'cobol'; available: python, sh, bash"),
    ],
)
def test_a_mistake_is_explained(file: str | None, code: str | None, language: str | None, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_program(file, code, language)
    assert reason in str(caught.value)


def test_a_file_that_is_not_there_is_answered_with_what_was_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "main.py").touch()
    monkeypatch.chdir(tmp_path.parent)
    for file, project, words in (
        ("main.py", tmp_path.name, f"not from the project: {tmp_path.name}/main.py"),
        ("ls", None, "a command is `hood run --language sh -c 'ls ...'`"),
        ("python3.11", None, "a program is named without 'python3.11' in front$"),
        ("node", tmp_path.name, "a program is named without 'node' in front$"),
        ("print(1)", None, "code is given with -c CODE"),
        ("none.py", None, "there is no such file$"),
    ):
        with pytest.raises(UsageError, match=words.replace("(", "[(]")):
            check_program(file, None, None, project)
        # A keeper's worker reads what its client has not looked at.
        with pytest.raises(UsageError, match=words.replace("(", "[(]")):
            read_program(file, None, None, project)
