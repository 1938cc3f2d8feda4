"""What Fumehood keeps for a user lies where only that user can change it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from requirements import require

from fumehood.environments import EnvironmentStore
from fumehood.errors import UsageError
from fumehood.host.folders import HOME, find_home


def test_the_place_can_be_chosen() -> None:
    assert find_home({"FUMEHOOD_HOME": "/srv/hood", "XDG_CACHE_HOME": "/c"}) == Path("/srv/hood")
    assert find_home({"XDG_CACHE_HOME": "/c"}) == Path("/c/fumehood")
    assert find_home({}) == Path("~/.cache/fumehood").expanduser()


def test_a_relative_place_is_refused_or_ignored() -> None:
    with pytest.raises(UsageError, match="must be an absolute path"):
        find_home({"FUMEHOOD_HOME": "hood"})
    assert find_home({"XDG_CACHE_HOME": "cache"}) == Path("~/.cache/fumehood").expanduser()


def test_new_folders_are_the_users_alone(tmp_path: Path) -> None:
    EnvironmentStore(tmp_path / "a/b/environments")
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a/b", "a/b/environments")] == [0o700, 0o700]


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_folder_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "environments"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(UsageError, match="can be written by others; run `chmod go-w"):
        EnvironmentStore(folder)


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    require(os.geteuid() == 0, "only root can give a folder away")
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    with pytest.raises(UsageError, match=r"belongs to another user \(uid 12345\)"):
        HOME.make(folder)


def test_a_link_of_somebody_else_is_refused(tmp_path: Path) -> None:
    require(os.geteuid() == 0, "only root can give a link away")
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("mine")
    HOME.make(tmp_path / "link")
    os.lchown(tmp_path / "link", 12345, 12345)
    with pytest.raises(UsageError, match="belongs to another user"):
        HOME.make(tmp_path / "link")


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"file(/environments)?, the folder of .*, cannot be used"):
        EnvironmentStore(tmp_path / "file/environments")
