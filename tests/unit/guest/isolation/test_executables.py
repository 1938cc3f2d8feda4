"""From the names of a policy's rules to files that may be executed, and folders that may be read."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from fumehood.guest.isolation.executables import Executables, ProgramSearch

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


def files(names: list[str], folder: Path | str = SYSTEM_PATH) -> list[str]:
    return Executables(names, str(folder), sys.base_prefix).files


def make(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_program_brings_its_loader() -> None:
    found = files(["cat"])
    assert os.path.realpath("/bin/cat") in found
    assert any("ld-" in os.path.basename(file) or "ld.so" in file for file in found)


def test_a_script_brings_its_interpreters(tmp_path: Path) -> None:
    outer = make(tmp_path / "outer", "#!/usr/bin/env cat\n")
    found = files(["outer"], tmp_path)
    assert {str(outer), os.path.realpath("/usr/bin/env"), os.path.realpath("/bin/cat")} <= set(found)


def test_links_are_followed_to_the_file(tmp_path: Path) -> None:
    make(tmp_path / "real", "x")
    (tmp_path / "name").symlink_to("real")
    assert files(["name"], tmp_path) == [str(tmp_path / "real")]


def test_one_of_many_programs_in_one_file_does_not_bring_the_others(tmp_path: Path) -> None:
    make(tmp_path / "busybox", "x")
    (tmp_path / "ls").symlink_to("busybox")
    assert files(["ls"], tmp_path) == []
    assert files(["ls", "busybox"], tmp_path) == [str(tmp_path / "busybox")]


def test_scripts_that_name_each_other_come_to_an_end(tmp_path: Path) -> None:
    make(tmp_path / "a", f"#!{tmp_path}/b\n")
    make(tmp_path / "b", f"#!{tmp_path}/a\n")
    assert files(["a"], tmp_path) == [str(tmp_path / "a"), str(tmp_path / "b")]


def test_what_is_not_there_is_left_out() -> None:
    assert files(["no-such-program", "/no/such/path"]) == []


def test_folders_of_programs_are_not_readable() -> None:
    readable = Executables(["cat"], SYSTEM_PATH, sys.base_prefix).readable()
    assert os.path.realpath("/bin/cat") in readable
    for path in ("/usr/bin/env", "/usr/sbin", os.path.realpath(sys.executable)):
        assert not any(path == place or path.startswith(f"{place}/") for place in readable)
    assert any("/usr/share".startswith(place) for place in readable)
    assert any(os.__file__.startswith(place) for place in readable)


def holding(*parts: str | Path) -> Path:
    """A file that is machine code, to the eye of who looks at its beginning."""
    path = Path(*parts)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x7fELF\x02\x01")
    return path


def readable_of(folder: Path) -> set[str]:
    return {str(Path(place).relative_to(folder)) for place in ProgramSearch().without_programs(str(folder))}


def test_programs_are_not_readable_wherever_their_folder_lies(tmp_path: Path) -> None:
    for place in ("cuda/bin/nvcc", "cuda/nvvm/bin/cicc", "R/bin/exec/R", "x/libexec/helper"):
        holding(tmp_path, place)
    holding(tmp_path, "cuda/lib64/libcuda.so")
    (tmp_path / "cuda" / "version.json").write_text("{}")
    assert readable_of(tmp_path) == {"cuda/lib64", "cuda/version.json"}


def test_a_folder_without_programs_stays_whole(tmp_path: Path) -> None:
    (tmp_path / "celery" / "bin").mkdir(parents=True)
    (tmp_path / "celery" / "bin" / "worker.py").write_text("x = 1")
    holding(tmp_path, "lib", "library.so")
    holding(tmp_path, "share", "bin", "data")
    assert readable_of(tmp_path) == {"."}


def test_what_there_was_no_time_to_search_is_not_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c", "z"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "notes").write_text("")
    shutil.copy("/bin/ls", tmp_path / "z" / "bin" / "prog")
    monkeypatch.setattr("fumehood.guest.isolation.executables._MOST_FOLDERS", 5)
    readable = ProgramSearch().without_programs(str(tmp_path))
    assert not any((tmp_path / "z" / "bin" / "prog").is_relative_to(place) for place in readable)
