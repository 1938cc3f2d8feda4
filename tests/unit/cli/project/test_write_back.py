"""What a program changed is written to the host's folder, and nowhere else."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from fumehood.cli.project.write_back import ConflictError, ExecutedFolders, ProjectChange, check, reason_against, write
from fumehood.host.folder_tree import FolderTree


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a.txt").write_bytes(b"old")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.txt").write_bytes(b"old")
    return tmp_path / "project"


@pytest.fixture
def tree(folder: Path) -> Iterator[FolderTree]:
    with FolderTree(str(folder)) as tree:
        yield tree


def test_a_file_is_replaced_as_a_whole_with_its_mode(folder: Path, tree: FolderTree) -> None:
    (folder / "a.txt").chmod(0o4750)
    write(tree, ProjectChange("a.txt", sha256(b"old"), b"new"))
    assert (folder / "a.txt").read_bytes() == b"new"
    assert stat.S_IMODE((folder / "a.txt").stat().st_mode) == 0o750
    assert os.listdir(folder) == ["a.txt"]


def test_a_new_file_is_data_in_new_folders(folder: Path, tree: FolderTree) -> None:
    write(tree, ProjectChange("b/c/d.sh", None, b"new"))
    assert (folder / "b/c/d.sh").read_bytes() == b"new"
    assert not (folder / "b/c/d.sh").stat().st_mode & 0o111


def test_a_file_is_deleted(folder: Path, tree: FolderTree) -> None:
    write(tree, ProjectChange("a.txt", sha256(b"old"), None))
    assert os.listdir(folder) == []


@pytest.mark.parametrize("content", [b"new", None])
def test_a_file_that_changed_on_the_host_meanwhile_stays(content: bytes | None, folder: Path, tree: FolderTree) -> None:
    (folder / "a.txt").write_bytes(b"mine")
    with pytest.raises(ConflictError, match="changed on the host since it was copied"):
        write(tree, ProjectChange("a.txt", sha256(b"old"), content))
    assert (folder / "a.txt").read_bytes() == b"mine"
    assert os.listdir(folder) == ["a.txt"]


def test_a_file_that_was_not_copied_in_is_not_replaced(folder: Path, tree: FolderTree) -> None:
    with pytest.raises(ConflictError, match="exists on the host, and was not copied"):
        write(tree, ProjectChange("a.txt", None, b"new"))
    assert (folder / "a.txt").read_bytes() == b"old"


def test_a_file_that_was_not_copied_in_is_not_even_read(folder: Path, tree: FolderTree) -> None:
    """It may be larger than memory, and the program chose its name."""
    os.truncate(folder / "a.txt", 1 << 40)
    with pytest.raises(ConflictError, match="exists on the host, and was not copied"):
        check(tree, ProjectChange("a.txt", None, b"new"))


@pytest.mark.parametrize("content", [b"new", None])
@pytest.mark.parametrize("before", [sha256(b"old"), None])
@pytest.mark.parametrize("path", ["link", "folder/a.txt", "folder/new.txt"])
def test_nothing_is_written_through_a_link(
    path: str, before: str | None, content: bytes | None, folder: Path, tree: FolderTree
) -> None:
    (folder / "link").symlink_to("../outside/a.txt")
    (folder / "folder").symlink_to("../outside")
    with pytest.raises(ConflictError):
        write(tree, ProjectChange(path, before, content))
    assert [each.read_bytes() for each in (folder.parent / "outside").iterdir()] == [b"old"]
    assert (folder / "link").is_symlink()


@pytest.mark.parametrize("path", ["../outside/a.txt", "x/../../outside/b", "/etc/x", "a//b", ".", "", "a/./b"])
@pytest.mark.parametrize("content", [b"new", None])
def test_no_name_leads_out(path: str, content: bytes | None, folder: Path, tree: FolderTree) -> None:
    with pytest.raises(ValueError, match="is not a single name"):
        write(tree, ProjectChange(path, None, content))
    assert [each.name for each in (folder.parent / "outside").iterdir()] == ["a.txt"]


def test_a_folder_is_not_replaced_by_a_file(folder: Path, tree: FolderTree) -> None:
    (folder / "sub").mkdir()
    with pytest.raises(ConflictError, match="on the host it is not a file"):
        write(tree, ProjectChange("sub", None, b"new"))
    with pytest.raises(ConflictError, match="its folder on the host cannot be used"):
        write(tree, ProjectChange("a.txt/b", None, b"new"))


@pytest.mark.parametrize("is_asked", [True, False])
@pytest.mark.parametrize(
    "path",
    [
        *(".git/hooks/x", "a/.GIT/config", ".venv/bin/python", "node_modules/x.js", "a/__pycache__/x", "x.PYC"),
        *("docs/HEAD", "env/pyvenv.cfg", "env/lib/python3.13/site-packages/x.pth"),
    ],
)
def test_what_tools_execute_is_never_written_back(path: str, is_asked: bool) -> None:
    assert reason_against(path, is_asked=is_asked) is not None


def test_names_that_only_look_like_it_are_written() -> None:
    names = ("x.git/a", "venvs/a", "a/pycache", "docs/HEADER", "head/a", "config")
    assert [reason_against(path, is_asked=False) for path in names] == [None] * len(names)


@pytest.mark.parametrize("path", [".gitignore", ".github/x", "helper.so", "a/helper.abi3.so"])
def test_what_tools_use_unasked_is_written_only_after_a_question(path: str) -> None:
    assert reason_against(path, is_asked=True) is None
    assert reason_against(path, is_asked=False) is not None


@pytest.mark.parametrize("mark", ["HEAD", "pyvenv.cfg"])
def test_a_repository_or_environment_is_known_by_what_is_in_it(mark: str, folder: Path, tree: FolderTree) -> None:
    (folder / "fixture" / "sub").mkdir(parents=True)
    (folder / "fixture" / mark).touch()
    executed = ExecutedFolders(tree)
    assert executed.reason_against("fixture/config") is not None
    assert executed.reason_against("fixture/sub/new/x") is not None
    assert [executed.reason_against(path) for path in ("a.txt", "fixture", "other/config")] == [None] * 3
