"""A sealed folder cannot be written, and its digest covers all that is in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from fumehood.environments.manifest import seal
from fumehood.errors import StepFailedError
from fumehood.host.folders import remove_folder


def fill(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "six.py").write_text("x = 1\n")
    (folder / "bin/tool").write_text("#!/bin/sh\n")
    (folder / "bin/tool").chmod(0o4777)
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_nobody_may_write_and_everybody_may_read(tmp_path: Path) -> None:
    folder = fill(tmp_path / "p")
    sealed = seal(folder)
    assert [mode(folder / name) for name in ("", "bin", "bin/tool", "six.py")] == [0o555, 0o555, 0o555, 0o444]
    assert sealed.size_bytes == len("x = 1\n#!/bin/sh\n")


def test_the_same_content_has_the_same_digest(tmp_path: Path) -> None:
    assert seal(fill(tmp_path / "a")) == seal(fill(tmp_path / "b"))


CHANGES: dict[str, Callable[[Path], object]] = {
    "a byte": lambda folder: (folder / "six.py").write_text("x = 2\n"),
    "a name": lambda folder: (folder / "six.py").rename(folder / "seven.py"),
    "a mode": lambda folder: (folder / "six.py").chmod(0o755),
    "one more file": lambda folder: (folder / "more.py").touch(),
    "one more folder": lambda folder: (folder / "more").mkdir(),
    "a link": lambda folder: (folder / "more").symlink_to("six.py"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_every_change_changes_the_digest(tmp_path: Path, change: Callable[[Path], object]) -> None:
    folder = fill(tmp_path / "b")
    change(folder)
    assert seal(folder).content != seal(fill(tmp_path / "a")).content


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "file").write_text("mine")
    folder = fill(tmp_path / "p")
    (folder / "link").symlink_to(outside)
    (folder / "bin/file").symlink_to(outside / "file")
    seal(folder)
    remove_folder(folder)
    assert not folder.exists()
    assert (mode(outside), mode(outside / "file"), (outside / "file").read_text()) == (0o755, 0o644, "mine")


def test_what_is_neither_file_nor_folder_is_refused(tmp_path: Path) -> None:
    folder = fill(tmp_path / "p")
    os.mkfifo(folder / "pipe")
    with pytest.raises(StepFailedError, match="pipe is neither"):
        seal(folder)


def test_a_sealed_folder_can_be_removed_and_one_that_is_gone_too(tmp_path: Path) -> None:
    folder = fill(tmp_path / "p")
    seal(folder)
    remove_folder(folder)
    remove_folder(folder)
    assert list(tmp_path.iterdir()) == []
