"""Room for files is limited in bytes and in number, and what fills it is told as such."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fumehood import Cause, Sandbox, Status

FILL = "f = open('{folder}/big', 'wb', buffering=0)\nwhile True: f.write(bytes(65536))"
MANY = "import itertools\nfor n in itertools.count(): open(f'{folder}/{{n}}', 'w').close()"
FOLDERS = ["/workspace", "/tmp", "/var/tmp", "/dev/shm"]


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("program", [FILL, MANY], ids=["bytes", "files"])
def test_a_full_disk_is_told_as_such(lend_box: Callable[..., Sandbox], folder: str, program: str) -> None:
    box = lend_box(resources={"disk": "8M", "inodes": 200})
    result = box.run(program.format(folder=folder), timeout=3)
    assert (result.status, result.cause) == (Status.RESOURCE_EXCEEDED, Cause.DISK)
    assert "No space left on device" in result.stderr or "File too large" in result.stderr
    assert "resources.disk" in result.detail


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_command_that_fills_the_disk_is_told_as_such(lend_box: Callable[..., Sandbox], folder: str) -> None:
    box = lend_box(resources={"disk": "8M"})
    result = box.run(argv=["dd", "if=/dev/zero", f"of={folder}/big", "bs=64K", "count=1000"])
    assert (result.status, result.cause) == (Status.RESOURCE_EXCEEDED, Cause.DISK)


def test_scratch_folders_are_empty_again_for_the_next_run(lend_box: Callable[..., Sandbox]) -> None:
    box = lend_box(resources={"disk": "8M"})
    for folder in ("/tmp", "/dev/shm"):
        assert box.run(FILL.format(folder=folder)).cause is Cause.DISK
    assert box.run("open('/tmp/x', 'wb').write(bytes(4 * 1024 ** 2))\nprint('room')").stdout == "room\n"


def test_the_workspace_has_a_size_of_its_own(lend_box: Callable[..., Sandbox]) -> None:
    box = lend_box(resources={"disk": "4M"}, filesystem={"workspace": {"size": "16M"}})
    assert box.run("open('/workspace/x', 'wb').write(bytes(10 * 1024 ** 2))").ok
    assert box.run("open('/tmp/x', 'wb').write(bytes(10 * 1024 ** 2))").cause is Cause.DISK


def test_a_disk_that_is_nearly_full_is_fine(lend_box: Callable[..., Sandbox]) -> None:
    assert lend_box(resources={"disk": "8M"}).run("open('x', 'wb').write(bytes(7 * 1024 ** 2))").ok


@pytest.mark.one_container
def test_a_failure_that_has_nothing_to_do_with_a_full_disk_is_a_plain_one(
    lend_box: Callable[..., Sandbox],
) -> None:
    """The workspace stays full after the run that filled it; later failures have causes of their own."""
    box = lend_box(resources={"disk": "1M"})
    assert box.run(FILL.format(folder="/workspace")).cause is Cause.DISK
    result = box.run("import sys; sys.exit(3)")
    assert (result.status, result.cause, result.exit_code) == (Status.ERROR, Cause.EXIT, 3)


@pytest.mark.parametrize(
    "resources", [{"disk": "4K"}, {"inodes": 16}, {"open_files": 16}, {"processes": 1}, {"output": 3}]
)
def test_the_smallest_limits_leave_room_for_a_small_program(
    lend_box: Callable[..., Sandbox], resources: dict[str, object]
) -> None:
    result = lend_box(resources=resources).run("print(42)")
    assert (result.stdout, result.stderr, result.ok) == ("42\n", "", True)
