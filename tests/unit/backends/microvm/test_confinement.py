"""Programs in QEMU's place: one whose start is given up leaves nothing, and is handed nothing else."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from fumehood.backends.microvm.confinement import ConfinedProcess, Confinement, start_confined
from fumehood.backends.native.cells import CellPool, CellProcess
from fumehood.backends.native.host_facts import HostFacts, detect
from fumehood.errors import StepFailedError
from fumehood.guest.contract.cell_spec import CellSpec
from fumehood.tenant import LOCAL, Tenant

pytestmark = pytest.mark.anyio

SLEEP = os.path.realpath("/usr/bin/sleep")
MEMORY_BYTES = 64 * 1024 * 1024


class SlowConfinement(Confinement):
    """Its start lasts until the test lets it go on."""

    def __init__(self, held: str) -> None:
        super().__init__(detect())
        self.is_held, self.goes_on = threading.Event(), threading.Event()
        self._held = held

    def start(
        self, command: Sequence[str], descriptors: Sequence[int], memory_bytes: int, cpus: float, tenant: Tenant
    ) -> ConfinedProcess:
        if self._held == "before":
            self._hold()
        process = super().start(command, descriptors, memory_bytes, cpus, tenant)
        if self._held == "after":
            self._hold()
        return process

    def _hold(self) -> None:
        self.is_held.set()
        assert self.goes_on.wait(60)


@pytest.fixture(params=["before", "after"])
def confinement(request: pytest.FixtureRequest) -> Iterator[SlowConfinement]:
    confinement = SlowConfinement(request.param)
    try:
        yield confinement
    finally:
        confinement.goes_on.set()
        confinement.close()


@pytest.mark.parametrize("way", ["cancelled", "timed out"])
async def test_a_start_that_is_given_up_leaves_no_process_and_sends_no_other_file(
    confinement: SlowConfinement, way: str
) -> None:
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    is_closed = False

    async def start() -> None:
        nonlocal is_closed
        try:
            async with asyncio.timeout(0.3 if way == "timed out" else None):
                await start_confined(confinement, [SLEEP, "600"], [theirs], memory_bytes=MEMORY_BYTES)
        finally:
            os.close(theirs)
            is_closed = True

    task = asyncio.create_task(start())
    assert await asyncio.to_thread(confinement.is_held.wait, 60)
    if way == "cancelled":
        task.cancel()
    await asyncio.wait([task], timeout=0.5)
    assert not is_closed, "the thread would send whatever has the descriptor's number by then"
    confinement.goes_on.set()
    with pytest.raises(asyncio.CancelledError if way == "cancelled" else TimeoutError):
        await task
    # The end of the pipe is there when no process has the other one any more.
    assert await asyncio.wait_for(asyncio.to_thread(os.read, ours, 1), 10) == b""
    os.close(ours)


class HastyPool(CellPool):
    """Discards a cell before it has got its first program, as a pool does with idle ones when others are needed."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def acquire(
        self, key: str, facts: HostFacts, build_spec: Callable[[], CellSpec], tenant: Tenant = LOCAL
    ) -> CellProcess:
        cell = super().acquire(key, facts, build_spec, tenant)
        if self.times:
            self.times -= 1
            self.discard(key)
        return cell


@pytest.mark.parametrize("times", [1, 2])
async def test_a_cell_that_ends_before_it_gets_its_program_is_replaced_once(
    monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr("fumehood.backends.microvm.confinement.CellPool", lambda: HastyPool(times))
    confinement = Confinement(detect())
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        starting = start_confined(confinement, [SLEEP, "600"], [nothing], memory_bytes=MEMORY_BYTES)
        if times == 1:
            await (await starting).close()
        else:
            with pytest.raises(StepFailedError, match="starting QEMU"):
                await starting
    finally:
        confinement.close()
        os.close(nothing)
