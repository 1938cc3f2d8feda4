"""The limit goes to the container's own cgroup, or nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from fumehood.backends.docker import socket_buffers

CONTAINER = "4f" * 32
LIMIT = "memory.kmem.tcp.limit_in_bytes"


@pytest.fixture
def hierarchy(tmp_path: Path) -> Path:
    """A memory hierarchy of version 1, mounted, in which the container and somebody else have a cgroup."""
    for name in (CONTAINER, "others"):
        (tmp_path / "memory" / "docker" / name).mkdir(parents=True)
        (tmp_path / "memory" / "docker" / name / LIMIT).write_text("9223372036854771712")
    mount = f"30 20 0:27 / {tmp_path / 'memory'} rw - cgroup cgroup rw,memory\n"
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text(
        f"29 20 0:26 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n{mount}"
    )
    return tmp_path / "memory" / "docker"


def make_process(proc: Path, number: int, group: str) -> None:
    (proc / str(number)).mkdir()
    (proc / str(number) / "cgroup").write_text(f"8:pids:/other\n4:memory:/docker/{group}\n")


def test_the_limit_is_written_to_the_cgroup_of_the_container(tmp_path: Path, hierarchy: Path) -> None:
    make_process(tmp_path, 77, CONTAINER)
    assert socket_buffers.limit(CONTAINER, 77, 4096, proc=tmp_path)
    assert (hierarchy / CONTAINER / LIMIT).read_text() == "4096"


def test_a_number_that_means_another_process_here_changes_nothing(tmp_path: Path, hierarchy: Path) -> None:
    make_process(tmp_path, 77, "others")
    assert not socket_buffers.limit(CONTAINER, 77, 4096, proc=tmp_path)
    assert (hierarchy / "others" / LIMIT).read_text() == "9223372036854771712"


def test_a_process_that_is_not_there_has_no_limit(tmp_path: Path, hierarchy: Path) -> None:
    assert not socket_buffers.limit(CONTAINER, 77, 4096, proc=tmp_path)


def test_a_kernel_without_that_limit_is_told(tmp_path: Path, hierarchy: Path) -> None:
    make_process(tmp_path, 77, CONTAINER)
    (hierarchy / CONTAINER / LIMIT).unlink()
    assert not socket_buffers.limit(CONTAINER, 77, 4096, proc=tmp_path)
