"""A delegated cgroup of version 2, with the kernel's own rules; its controllers may be bound to version 1 here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ordinary import ORDINARY
from requirements import require

CHILD = """
import json, os, sys
from pathlib import Path
from fumehood.backends.native.delegation import use_delegated_cgroup
group, user = sys.argv[1], int(sys.argv[2])
Path(group, "cgroup.procs").write_text(str(os.getpid()))
if user:
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
found = use_delegated_cgroup()
print(json.dumps([str(found), Path("/proc/self/cgroup").read_text().rpartition("0::")[2].strip()]))
"""


@pytest.fixture
def group() -> Iterator[Path]:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    mount = next((Path(place) for _, place, kind, *_ in mounts if kind == "cgroup2"), None)
    require(os.geteuid() == 0 and mount is not None, "needs root and a mounted version 2 hierarchy")
    assert mount is not None
    made = mount / f"hood-delegated-{os.getpid()}"
    made.mkdir()
    try:
        yield made
    finally:
        for folder in (*made.glob("*/"), made):
            folder.rmdir()


def started(group: Path, user: int = 0) -> tuple[str, str]:
    command = [sys.executable, "-c", CHILD, str(group), str(user)]
    found, place = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found, place


def test_a_service_leaves_the_group_that_was_delegated_to_it_for_a_child_of_that(group: Path) -> None:
    for path in (group, group / "cgroup.procs", group / "cgroup.subtree_control"):
        os.chown(path, ORDINARY, ORDINARY)
    assert started(group, ORDINARY) == (str(group), f"/{group.name}/server")


def test_root_does_so_where_the_service_manager_has_marked_the_group_and_nowhere_else(group: Path) -> None:
    assert started(group) == ("None", f"/{group.name}")
    os.setxattr(group, "user.delegate", b"1")
    assert started(group) == (str(group), f"/{group.name}/server")
    with subprocess.Popen(["sleep", "60"]) as other:
        (group / "cgroup.procs").write_text(str(other.pid))
        assert started(group) == ("None", f"/{group.name}")  # others are in it, whose group it may be
        other.kill()
