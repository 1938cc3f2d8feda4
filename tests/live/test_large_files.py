"""A large file in and out: the same bytes, and memory on both sides that does not grow with the file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import sampling
from live.traces import descendants

from fumehood import Policy, Sandbox

pytestmark = pytest.mark.serial
MIB = 1024 * 1024
FILE_MIB = sampling.amount(128, whole=1024)
# An interpreter, and a few chunks of a megabyte on their way.
ALLOWED_MIB = 64


@pytest.fixture
def large_file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "large"
    chunk = os.urandom(MIB)
    with path.open("wb") as stream:
        for number in range(FILE_MIB):
            stream.write(number.to_bytes(8) + chunk[8:])
    yield path
    path.unlink()


def sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def peak_mib(process: int) -> float:
    with open(f"/proc/{process}/status", encoding="ascii") as stream:
        fields = dict(line.split(":", 1) for line in stream)
    return int(fields["VmHWM"].split()[0]) / 1024


def test_a_large_file_goes_in_and_out_in_constant_memory(large_file: Path, tmp_path: Path) -> None:
    policy = Policy(filesystem={"workspace": {"size": "1100M"}, "outputs": ["out/**"]}, resources={"memory": "256M"})
    before, others = peak_mib(os.getpid()), set(descendants(os.getpid()))
    with Sandbox(policy) as box:
        assert box.files.upload(large_file, "out/large").bytes == FILE_MIB * MIB
        (digest,) = box.run(argv=["sha256sum", "out/large"]).stdout.split()[:1]
        assert box.files.download("out/large", tmp_path / "back").bytes == FILE_MIB * MIB
        inside = {process: peak_mib(process) for process in set(descendants(os.getpid())) - others}
    assert digest == sha256(large_file) == sha256(tmp_path / "back")
    (tmp_path / "back").unlink()
    assert peak_mib(os.getpid()) - before < ALLOWED_MIB
    assert max(inside.values()) < ALLOWED_MIB, inside
