"""What killed builds left is removed from a folder of one's own, and from no other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ordinary import own
from requirements import require

from fumehood.errors import UsageError
from fumehood.images.build_dir import remove_abandoned


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "hood"
    (folder / "images" / "building-x").mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    (folder / "images").chmod(0o700)
    monkeypatch.setenv("FUMEHOOD_HOME", str(folder))
    return folder


def test_what_a_killed_build_left_is_removed(home: Path) -> None:
    assert remove_abandoned() == [str(home / "images" / "building-x")]


def test_nothing_is_removed_from_a_folder_of_another_user(home: Path) -> None:
    require(os.geteuid() == 0, "giving a folder away needs root")
    own(home)
    with pytest.raises(UsageError, match="belongs to another user"):
        remove_abandoned()
    assert (home / "images" / "building-x").is_dir()


@pytest.mark.parametrize("place", [".", "images"])
def test_nothing_is_removed_from_a_folder_that_others_can_write(home: Path, place: str) -> None:
    (home / place).chmod(0o777)
    with pytest.raises(UsageError, match="can be written by others"):
        remove_abandoned()
    assert (home / "images" / "building-x").is_dir()


def test_a_link_that_another_user_made_is_not_followed(home: Path, tmp_path: Path) -> None:
    require(os.geteuid() == 0, "giving a link away needs root")
    (home / "images").rename(tmp_path / "elsewhere")
    (home / "images").symlink_to(tmp_path / "elsewhere")
    os.lchown(home / "images", 12_345, 12_345)
    with pytest.raises(UsageError, match="belongs to another user"):
        remove_abandoned()
    assert (tmp_path / "elsewhere" / "building-x").is_dir()
