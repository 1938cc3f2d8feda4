"""The archive that a kernel unpacks when it starts, as another reader sees it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from fumehood.images import cpio


def test_busybox_unpacks_what_was_packed(tmp_path: Path) -> None:
    packed = cpio.archive(("bin",), {"init": (b"#!/bin/sh\n", 0o755), "bin/data": (b"12345", 0o444)})
    subprocess.run(["/bin/busybox", "cpio", "-i"], input=packed, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "init").read_bytes() == b"#!/bin/sh\n"
    assert (tmp_path / "init").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "bin/data").read_bytes() == b"12345"


def test_equal_contents_are_equal_bytes() -> None:
    assert cpio.archive(("a",), {"b": (b"c", 0o644)}) == cpio.archive(("a",), {"b": (b"c", 0o644)})
