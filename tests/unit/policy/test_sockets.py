"""Sockets in a folder are found, and it is said when the search did not get to its end."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest

from fumehood.policy import Policy
from fumehood.policy.sockets import find_socket


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Path]:
    """Its path as the kernel lists it."""
    place = tmp_path / "data" / "inner" / "s"
    place.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen()
        yield place


def test_a_socket_is_found_however_deep_it_lies(listener: Path) -> None:
    assert find_socket(str(listener.parents[1])) == (str(listener), True)
    assert find_socket(str(listener)) == (str(listener), True)


def test_files_folders_pipes_and_links_are_no_sockets(listener: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    (folder / "inner").mkdir(parents=True)
    (folder / "file").touch()
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to(listener)
    (folder / "folder").symlink_to(listener.parent)
    assert find_socket(str(folder)) == (None, True)
    assert find_socket(str(folder / "file")) == (None, True)
    assert find_socket(str(folder / "missing")) == (None, True)


def test_past_its_bound_the_search_asks_the_kernel_who_listens(listener: Path, tmp_path: Path) -> None:
    assert find_socket(str(listener.parents[1]), most_entries=1) == (str(listener), False)
    listener.unlink()
    assert find_socket(str(listener.parents[1]), most_entries=0) == (None, False)


def test_a_socket_that_was_bound_by_a_relative_path_is_found_as_well(tmp_path: Path) -> None:
    with chdir(tmp_path), socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s")
    assert find_socket(str(tmp_path)) == (str(tmp_path / "s"), True)


def mount(source: Path, **more: object) -> Policy:
    return Policy(filesystem={"mounts": [{"source": str(source), "target": "/data", **more}]})


def test_a_mount_with_a_socket_is_a_danger_that_names_it(listener: Path) -> None:
    (finding,) = mount(listener.parents[1]).lint()
    assert (finding.level, finding.key) == ("danger", "filesystem.mounts[/data]")
    assert str(listener) in finding.message
    assert "sockets: true" in finding.message


def test_a_mount_that_allows_sockets_is_a_danger_whether_there_are_any_or_not(tmp_path: Path) -> None:
    (finding,) = mount(tmp_path, sockets=True).lint()
    assert finding.level == "danger"
    assert "talk to whatever listens" in finding.message


def test_allowing_sockets_is_a_change_of_its_own(tmp_path: Path) -> None:
    without, with_them = mount(tmp_path), mount(tmp_path, sockets=True)
    assert without.diff(with_them) == ["allows sockets in mount /data"]
    assert with_them.diff(without) == ["forbids sockets in mount /data"]
    assert without.digest != with_them.digest
