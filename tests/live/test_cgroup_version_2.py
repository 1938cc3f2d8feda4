"""The version 2 hierarchy for real, as far as it goes: on a machine whose controllers are all bound to version 1, runs
can still be placed in version 2 groups, which is the part with the difficult rules.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
from requirements import require

from fumehood import Policy
from fumehood.backends.interface import RunRequest
from fumehood.backends.native.backend import NativeBackend
from fumehood.backends.native.cgroups import Hierarchy
from fumehood.backends.native.host_facts import detect

pytestmark = [pytest.mark.anyio, pytest.mark.serial]


def version_2_mount() -> Path | None:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    return None


async def run(backend: NativeBackend, source: bytes) -> bytes:
    request = RunRequest("python", (), source, "main.py", {}, "", 10.0, None)
    async with backend.open(Policy(), None) as sandbox, sandbox.start(request) as execution:
        return b"".join([output.data async for output in execution.output()])


async def test_a_run_lives_in_a_version_2_group_of_its_own_and_sees_only_that() -> None:
    mount = version_2_mount()
    require(os.geteuid() == 0 and mount is not None, "needs root and a mounted version 2 hierarchy")
    assert mount is not None
    hierarchy = Hierarchy(2, (), mount)
    backend = NativeBackend(dataclasses.replace(detect(), hierarchies=(hierarchy,)))
    try:
        shown = await run(backend, b"print(open('/proc/self/cgroup').read())")
        assert b"0::/\n" in shown
        groups = [group.name for group in mount.glob(f"fumehood-{os.getpid()}-*/*") if group.is_dir()]
        assert "cell" in groups
        assert any(name.startswith("run-") for name in groups)
    finally:
        backend.close()
    assert not list(mount.glob(f"fumehood-{os.getpid()}-*"))
