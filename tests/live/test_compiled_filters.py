"""How many filters the kernel compiles for a run: none. They are the cell's or the container's, and inherited.

A filter is compiled when it is installed, and a process has those of its parent and what it has installed itself. So a
run whose processes have as many as the process that they are born of has brought none, and frees none when it ends.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import engine
import pytest
from escape.gates import descendants, parent
from escape.laboratory import lingering_attack
from requirements import require

from fumehood import AsyncSandbox, Policy, Sandbox

pytestmark = pytest.mark.anyio

NAME = "hood-counted"
COUNT_INSIDE = """
import json, os

def status(process):
    return dict(line.rstrip("\\n").split(":\\t", 1) for line in open(f"/proc/{process}/status") if ":\\t" in line)

counts, process = [], os.getpid()
for _ in range(3):
    counts.append(int(status(process)["Seccomp_filters"]))
    process = int(status(process)["PPid"])
print(json.dumps(counts))
"""


def filters(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Seccomp_filters")).split()[1])


def named() -> int:
    return next(pid for pid in descendants() if Path(f"/proc/{pid}/comm").read_text() == f"{NAME}\n")


@pytest.fixture
async def native() -> AsyncIterator[AsyncSandbox]:
    async with AsyncSandbox(Policy(backend="native")) as opened:
        yield opened


@pytest.fixture
def docker_host(monkeypatch: pytest.MonkeyPatch) -> None:
    require(engine.missing() is None, engine.missing() or "")
    monkeypatch.setenv("DOCKER_HOST", engine.use())


async def test_a_native_run_has_the_one_filter_of_its_cell(native: AsyncSandbox) -> None:
    async with lingering_attack(native, f"found = libc.prctl(15, {NAME.encode()!r}, 0, 0, 0)"):
        program = named()
        assert filters(program) == filters(parent(program)) == filters(os.getpid()) + 1


async def test_a_command_has_the_one_filter_of_its_cell(native: AsyncSandbox) -> None:
    counted = await native.run(argv=["grep", "Seccomp_filters", "/proc/self/status"])
    assert int(counted.stdout.split()[1]) == filters(os.getpid()) + 1


@pytest.mark.usefixtures("docker_host")
def test_a_run_in_a_container_has_the_filters_of_the_process_that_it_was_born_of() -> None:
    with Sandbox(Policy(backend="docker")) as box:
        program, supervisor, forker = json.loads(box.run(COUNT_INSIDE).stdout)
    own_and_the_engines = 2
    assert program == supervisor == forker >= own_and_the_engines
