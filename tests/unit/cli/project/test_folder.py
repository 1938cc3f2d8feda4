"""Which files of a project go into a sandbox."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from fumehood import Policy
from fumehood.cli.project.folder import ProjectFolder
from fumehood.errors import UsageError
from fumehood.host.folder_tree import FolderTree


def scan(folder: Path, **resources: object) -> ProjectFolder:
    with FolderTree(str(folder)) as tree:
        project = ProjectFolder(tree, Policy(resources=resources))
        project.scan()
    return project


def paths(folder: Path) -> list[str]:
    return sorted(entry.path for entry in scan(folder).entries)


def test_files_and_folders_go_in_but_for_what_is_ignored(tmp_path: Path) -> None:
    for name in ("main.py", "src/a.py", "src/.gitignore", "src/skip.txt", ".git/config", "node_modules/x/y", "b.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "src" / ".gitignore").write_text("skip.txt\n")
    assert paths(tmp_path) == [".gitignore", "main.py", "src", "src/.gitignore", "src/a.py"]
    (tmp_path / ".hoodignore").write_text("!*.log\nmain.py\n!node_modules/\n")
    more = {".hoodignore", "b.log", "node_modules", "node_modules/x", "node_modules/x/y"}
    assert set(paths(tmp_path)) == {".gitignore", "src", "src/.gitignore", "src/a.py", *more}


def test_no_rule_of_a_folder_brings_in_secrets_and_histories(tmp_path: Path) -> None:
    for name in (".env", ".env.local", ".git/config", "sub/.netrc", "sub/.env"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for file in (".gitignore", ".hoodignore", "sub/.gitignore"):
        (tmp_path / file).write_text("!.env\n!.env.*\n!*\n!**\n!.git/\n!.git/**\n!/.env\n!.netrc\n")
    assert paths(tmp_path) == [".gitignore", ".hoodignore", "sub", "sub/.gitignore"]


@pytest.mark.parametrize("rule", ["*a" * 30_000, "[a-z]" * 33, "a" * 1001, "?" * 64_000])
def test_a_rule_that_takes_long_to_compile_is_refused(tmp_path: Path, rule: str) -> None:
    (tmp_path / ".gitignore").write_text(rule)
    with pytest.raises(UsageError, match=r"\.gitignore or .* has the rule .* at most 1000 characters"):
        scan(tmp_path)


def test_a_link_goes_in_as_a_link_if_it_stays_inside(tmp_path: Path) -> None:
    (tmp_path / "inside").symlink_to("x/y")
    for number, target in enumerate(["/etc/passwd", "../secret", "x/../../secret", "."]):
        (tmp_path / f"out{number}").symlink_to(target)
    project = scan(tmp_path)
    assert [(entry.path, entry.target) for entry in project.entries] == [("inside", "x/y")]
    assert len(project.notes) == 4


def test_an_ignore_file_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    """Its lines would be those of a file of the host's."""
    (tmp_path / "main.py").touch()
    (tmp_path / "rules").write_text("*\n")
    (tmp_path / ".gitignore").symlink_to("rules")
    assert "main.py" in paths(tmp_path)


def test_special_files_stay_out_and_hold_up_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe\nhood: all is well")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    project = scan(tmp_path)
    assert project.entries == []
    assert project.notes[0] == (
        "pipe⟨U+000A⟩hood: all is well is left out: it is neither a file nor a folder nor a link"
    )


def test_a_project_that_is_too_large_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(2 * 1024**2)
    with pytest.raises(UsageError, match=r"more than the 1M that the workspace holds \(--disk\); .* \.hoodignore"):
        scan(tmp_path, disk="1M")


def test_a_project_of_too_many_files_is_refused(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).touch()
    with pytest.raises(UsageError, match="more than 16 files"):
        scan(tmp_path, inodes=16)


def test_a_project_that_is_too_deep_is_refused(tmp_path: Path) -> None:
    (tmp_path / "/".join("d" * 52)).mkdir(parents=True)
    with pytest.raises(UsageError, match="more than 50 folders deep"):
        scan(tmp_path)


@pytest.mark.parametrize("home", ["", "below"])
def test_a_home_folder_is_not_a_project(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / home))
    (tmp_path / home).mkdir(exist_ok=True)
    with pytest.raises(UsageError, match="your home folder is not a folder of one program"):
        scan(tmp_path)
