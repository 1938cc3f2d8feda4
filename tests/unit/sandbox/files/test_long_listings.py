"""A folder of links can be longer than anything that the host should keep: it is bounded in bytes, and says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.sandbox.files.rooms import Room

from fumehood.errors import UsageError

pytestmark = pytest.mark.anyio

LINKS = 8500


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("links") / "out"
    folder.mkdir()
    for number in range(LINKS):
        (folder / str(number)).symlink_to("x" * 4000)
    return folder


@pytest.fixture
def long_room(room: Room, links: Path) -> Iterator[Room]:
    """The folder is moved in and out: making it takes longer than the tests, and none of them changes it."""
    links.rename(room.workspace / "out")
    yield room
    (room.workspace / "out").rename(links)


async def test_a_folder_of_long_links_is_not_listed(long_room: Room) -> None:
    with pytest.raises(UsageError, match="more than 32M together, too much to list; remove some"):
        await long_room.files.list("out")


async def test_a_folder_of_long_links_is_not_downloaded(long_room: Room, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="too long to keep together; download the folders in it one by one"):
        await long_room.files.download("out", tmp_path / "target")


async def test_artifacts_beside_long_links_are_a_problem_and_not_a_burden(long_room: Room) -> None:
    collection = await long_room.artifacts.collect()
    assert collection.problem == (
        "the workspace has paths and links that are too long to keep together where outputs may be; make fewer"
    )


async def test_a_folder_of_many_ordinary_files_is_listed(room: Room) -> None:
    for number in range(5000):
        (room.workspace / f"an ordinary name {number}.txt").touch()
    assert len(await room.files.list()) == 5000
