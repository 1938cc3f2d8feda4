"""Images for machines take their place whole, also from a folder on another disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fumehood.backends.microvm.image import FACTS, VARIABLE, image_folder
from fumehood.images.machine import publish


@pytest.fixture(params=["the same disk", "another disk"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of an image that is there."""
    if request.param == "another disk" and os.stat("/dev/shm").st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is one disk alone")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if request.param == "another disk" else tmp_path) as place:
        monkeypatch.setenv(VARIABLE, place)
        folder = image_folder("x:latest", os.environ)
        folder.parent.mkdir(mode=0o700)
        folder.mkdir()
        (folder / FACTS).write_text("old")
        yield folder


def test_an_image_takes_the_place_of_the_one_of_its_name(folder: Path, tmp_path: Path) -> None:
    draft = tmp_path / "image"
    draft.mkdir()
    (draft / FACTS).write_text("new")
    publish(draft, folder)
    assert (folder / FACTS).read_text() == "new"
    assert sorted(os.listdir(folder.parent)) == ["lock", folder.name]


def test_an_image_that_cannot_be_published_leaves_the_one_that_is_there(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError):
        publish(tmp_path / "none", folder)
    assert (folder / FACTS).read_text() == "old"
