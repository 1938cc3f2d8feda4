"""What placing a sandbox costs one server, and what other tenants wait while one floods it.

The server is this process, so that no client takes part in it: what is read of a client's wishes, registry, admission
in its database, the choice of a worker, NATS and TLS are as in `hood serve`. Workers are processes.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from benchmarks.nats_process import running_nats
from fumehood.cli.bench.measurement import Row, per_second
from fumehood.cluster.authority import ClusterAuthority
from fumehood.cluster.folder import SERVER_FILE, WORKER_FILE
from fumehood.policy import Policy
from fumehood.remote.policies import pack_policy
from fumehood.sandbox.async_sandbox import AsyncSandbox
from fumehood.server.fleet.choice import SandboxNeeds
from fumehood.server.fleet.fair_queue import WAIT_SECONDS, FairQueue
from fumehood.server.identity.principals import OF_TENANTS, Principal
from fumehood.server.lifetime import ServerState, open_server
from fumehood.server.sandboxes.errors import NoCapacityError
from fumehood.server.sandboxes.open_sandbox import OpenSandbox
from fumehood.server.sandboxes.opening import Times
from fumehood.server.sandboxes.requested_opening import read_opening
from fumehood.server.settings import ServerSettings
from fumehood.server.tenants.quotas import Quota, set_limit
from fumehood.server.tenants.tenants import create_tenant

_SLOT_WORKER = "benchmarks.slot_worker"
_PLACED, _AT_ONCE, _TENANTS = 2_000, 64, 4
_OPENED = 60
_SLOTS, _FLOOD, _OTHERS, _OPENINGS_OF_OTHERS, _PAUSE_SECONDS = 4, 40, 5, 10, 0.1
_PLENTY = 1e12
_READY = "ready"
_WISHED = pack_policy(Policy())


def _unseen(progress: str) -> None:
    """No client waits for it."""


async def measure(disk: Path) -> AsyncIterator[Row]:
    async with _placing(disk / "slots", [sys.executable, "-m", _SLOT_WORKER], "20000") as (server, workers):
        yield await _placed(server, workers)
    async with _placing(disk / "real", [sys.executable, "-m", "fumehood", "worker", "--folder"], "200") as (server, _):
        yield await _opened(server, disk)
    fair, unfair = [await _waits(disk / f"flood-{is_fair}", is_fair=is_fair) for is_fair in (True, False)]
    yield Row("wait of others for a sandbox during a flood, 99.9 % / first come, first served", fair, against=unfair)


@asynccontextmanager
async def _placing(folder: Path, command: list[str], slots: str) -> AsyncIterator[tuple[ServerState, list[int]]]:
    """A server and two workers, by their processes."""
    async with AsyncExitStack() as stack:
        authority = stack.enter_context(running_nats(folder / "cluster"))
        authority.make_member("server", "server").write(folder / "cluster" / SERVER_FILE)
        settings = {"state": str(folder / "state"), "cluster": str(folder / "cluster"), "strict": False}
        server = await stack.enter_async_context(open_server(ServerSettings.model_validate(settings), print))
        workers = [_start_worker(stack, authority, folder / name, command, slots) for name in ("w1", "w2")]
        # They announce themselves every second.
        while server.fleet is None or len(server.fleet.describe()) < len(workers):  # noqa: ASYNC110
            await asyncio.sleep(_PAUSE_SECONDS)
        gc.freeze()  # as the commands of hood do with all that they have imported
        yield server, workers


def _start_worker(
    stack: AsyncExitStack, authority: ClusterAuthority, folder: Path, command: list[str], slots: str
) -> int:
    folder.mkdir(mode=0o700)
    authority.make_member(folder.name, "worker").write(folder / WORKER_FILE)
    options = [str(folder), slots] if _SLOT_WORKER in command else [str(folder), "--slots", slots]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    stack.callback(process.communicate)
    stack.callback(process.kill)
    assert process.stdout is not None
    said = process.stdout.readline()
    if _READY not in said:
        raise RuntimeError(f"the worker did not start: {said}")
    return process.pid


async def _tenants(server: ServerState, names: Sequence[str]) -> None:
    for name in names:
        await create_tenant(server.database, name, "bench")
        for quota in Quota:
            await set_limit(server.database, name, quota, _PLENTY, "bench")


async def _open(server: ServerState, tenant: str) -> OpenSandbox:
    principal = Principal(tenant, "key:bench", frozenset(OF_TENANTS))
    wishes = {"do": "open", "policy": _WISHED}
    opening = await read_opening(server.database, principal, wishes, Times(), _unseen)
    return (await server.registry.open(principal, opening, server.chains.trail_of(principal)))[0]


async def _placed(server: ServerState, workers: list[int]) -> Row:
    """Chosen, asked, answered with an epoch and recorded. Nothing is opened on the worker."""
    names = [f"t{number}" for number in range(_TENANTS)]
    await _tenants(server, names)
    opened: list[OpenSandbox] = []

    async def place() -> None:
        opened.append(await _open(server, names[len(opened) % _TENANTS]))

    for _ in range(_TENANTS):
        await place()
    begun, of_workers = time.process_time(), _cpu_seconds(workers)
    placed = await per_second(place, _PLACED, _AT_ONCE)
    used = (time.process_time() - begun) / _PLACED
    used_by_workers = (_cpu_seconds(workers) - of_workers) / _PLACED
    await asyncio.gather(*(each.close("closed") for each in opened))
    name = (
        f"openings placed a second by one server ({used * 1000:.2f} ms of CPU, {used_by_workers * 1000:.2f} of workers)"
    )
    return Row(name, placed, "/s", budget="1000/s")


def _cpu_seconds(processes: list[int]) -> float:
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / 100


async def _opened(server: ServerState, disk: Path) -> Row:
    await _tenants(server, ["bench"])

    async def open_there() -> None:
        await (await _open(server, "bench")).close("closed")

    async def open_here() -> None:
        async with AsyncSandbox(Policy(), audit=disk / "own"):
            pass

    rates: list[float] = []
    for job in (open_there, open_here):
        await job()
        rates.append(await per_second(job, _OPENED, 8))
    return Row("native sandboxes opened and closed a second, 8 at once, by workers / here", rates[0], "/s", rates[1])


class _FirstComeQueue(FairQueue):
    """All openings as if they were one tenant's."""

    async def wait(self, needs: SandboxNeeds, seconds: float = WAIT_SECONDS, *, is_next: bool = False) -> None:
        await super().wait(replace(needs, tenant="all"), seconds, is_next=is_next)


async def _waits(folder: Path, *, is_fair: bool) -> float:
    """One tenant asks for sandboxes all the time, forty at once, others now and then; workers have eight slots."""
    command, waits = [sys.executable, "-m", "fumehood", "worker", "--folder"], list[float]()
    async with _placing(folder, command, str(_SLOTS)) as (server, _):
        assert server.fleet is not None
        if not is_fair:
            server.fleet.queue = _FirstComeQueue()
        others = [f"other{number}" for number in range(_OTHERS)]
        await _tenants(server, ["flood", *others])

        async def use(tenant: str) -> float:
            """How long it has waited for its sandbox, in milliseconds."""
            begun = time.perf_counter()
            opened = await _open(server, tenant)
            waited = (time.perf_counter() - begun) * 1000
            await opened.box.run("pass")
            await opened.close("closed")
            return waited

        async def flood() -> None:
            while True:
                with suppress(NoCapacityError):  # it has waited for too long, and tries again
                    await use("flood")

        async def other(tenant: str) -> None:
            for _ in range(_OPENINGS_OF_OTHERS):
                await asyncio.sleep(_PAUSE_SECONDS)
                try:
                    waits.append(await use(tenant))
                except NoCapacityError:
                    waits.append(WAIT_SECONDS * 1000)

        floods = [asyncio.ensure_future(flood()) for _ in range(_FLOOD)]
        await asyncio.gather(*map(other, others))
        for task in floods:
            task.cancel()
        await asyncio.gather(*floods, return_exceptions=True)
    return sorted(waits)[int(len(waits) * 0.999)]
