"""Files of an image for machines: of the one that was read, or none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fumehood.backends.microvm import image as machine_image
from fumehood.backends.microvm.image import FACTS, ROOT, MachineImageMissingError, read_image


def make_image(folder: Path, digest: str) -> None:
    folder.mkdir(parents=True)
    facts = {"format": machine_image.FORMAT, "digest": digest, "release": "6", "user": [1, 1], "python": [3, 11]}
    (folder / FACTS).write_text(json.dumps({**facts, "environment": None, "languages": []}))
    (folder / ROOT).write_text(digest)


def test_a_disk_is_never_that_of_an_image_that_has_taken_the_place(tmp_path: Path) -> None:
    """A template of the first one would go on with files that are not those it knows."""
    variables = {machine_image.VARIABLE: str(tmp_path)}
    folder = machine_image.image_folder("x:latest", variables)
    make_image(folder, "sha256:1")
    image = read_image("x", variables)
    with open(image.open(ROOT)) as stream:
        assert stream.read() == "sha256:1"
    folder.rename(folder.with_name("old"))
    make_image(folder, "sha256:2")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(MachineImageMissingError, match="replaced meanwhile"):
        image.open(ROOT)
    (folder / FACTS).write_text("[]")
    with pytest.raises(MachineImageMissingError, match="cannot be read"):
        image.open(ROOT)
    assert len(os.listdir("/proc/self/fd")) == before
