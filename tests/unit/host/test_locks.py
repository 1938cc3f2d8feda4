"""A lock is held by one process, or shared, and is gone with its holder."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest

from fumehood.host.locks import holder, lock_exclusive, try_exclusive, try_folder, try_shared


def test_several_share_a_lock_that_nobody_then_has_alone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first, second = try_shared(path), try_shared(path)
    assert first is not None
    assert second is not None
    first.close()
    assert try_exclusive(path) is None
    second.close()
    assert try_exclusive(path) is not None


def test_a_lock_whose_file_was_removed_excludes_nobody(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = try_exclusive(path)
    assert first
    assert try_exclusive(path) is None
    assert try_shared(path) is None
    first.remove()
    second = try_exclusive(path)
    assert second
    first.close()
    assert try_exclusive(path) is None
    second.close()


def test_a_folder_is_locked_without_a_file_in_it(tmp_path: Path) -> None:
    lock = try_folder(tmp_path)
    assert lock is not None
    assert try_folder(tmp_path) is None
    lock.close()
    assert try_folder(tmp_path) is not None
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError, match="symbolic links"):
        try_exclusive(tmp_path / "link")


def test_who_waits_for_a_lock_that_is_removed_gets_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = try_exclusive(path)
    assert first is not None
    waiting = Thread(target=lambda: lock_exclusive(path).close())
    waiting.start()
    first.remove()
    first.close()
    waiting.join(10)
    assert not waiting.is_alive()
    assert path.exists()


def test_the_holder_is_named_as_far_as_it_is_known(tmp_path: Path) -> None:
    assert holder(tmp_path / "lock") == "unknown"
