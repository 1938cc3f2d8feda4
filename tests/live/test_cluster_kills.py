"""Workers that are killed again and again while runs go on: each run has one typed end, and no effect is had twice."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from itertools import cycle

import pytest
import sampling
from hood_cluster import RunningCluster, running_cluster, wait_for_workers
from hood_server import RunningServer
from live.warm_workers import WarmWorker
from upstreams import Web, serving

from fumehood import Policy
from fumehood.errors import FumehoodError
from fumehood.remote.server import Server, connect

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1800)]
_WORKERS, _CLIENTS = 2, 8


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    with running_cluster() as running:
        yield running


class Traffic:
    """Clients that open a sandbox, have an effect outside through its gateway, and begin again."""

    def __init__(self, hood: Server, web: Web) -> None:
        self._hood, self._web = hood, web
        self._policy = Policy(network={"allow": [{"host": "127.0.0.1", "ports": [web.port], "private": True}]})
        self._is_over, self._is_there, self._is_begun = False, asyncio.Event(), asyncio.Event()
        self.ends: dict[int, str] = {}
        self.open = 0
        """Runs that are under way."""
        self.run_seconds = 1.0
        """How long the last one took that was whole: kills are to meet each part of one."""

    async def flow(self) -> None:
        await asyncio.gather(*(self._client() for _ in range(_CLIENTS)))

    def end(self) -> None:
        self._is_over = True
        self._is_there.set()

    async def wait_for_runs(self) -> None:
        """Until most clients have a run under way."""
        while self.open * 2 < _CLIENTS:
            self._is_begun.clear()
            await self._is_begun.wait()

    def wake(self) -> None:
        """A worker is there again."""
        self._is_there.set()

    async def _client(self) -> None:
        while not self._is_over:
            number = len(self.ends)
            self.ends[number] = "open"
            self.ends[number] = await self._one(number)
            if self.ends[number] == "refused":
                self._is_there.clear()
                await self._is_there.wait()

    async def _one(self, number: int) -> str:
        code = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{self._web.port}/effect/{number}').read()"
        try:
            async with self._hood.sandbox(self._policy) as box:
                self.open += 1
                self._is_begun.set()
                begun = time.monotonic()
                try:
                    result = await box.run(code)
                    if not result.ok:
                        return str(result.cause)
                    self.run_seconds = time.monotonic() - begun
                    return "ok"
                finally:
                    self.open -= 1
        except FumehoodError:
            return "refused"


class Killer:
    """Ends workers in turn, each at a random moment while runs are under way, and starts them again."""

    def __init__(self, traffic: Traffic, moments: int) -> None:
        self._traffic, self._moments, self._chance = traffic, moments, random.Random(19)
        self.killed = 0
        """Moments at which runs were under way."""
        self.runs = 0
        """Runs that were under way then, on both workers."""

    async def end_all(self, workers: list[WarmWorker]) -> None:
        for worker in cycle(workers):
            if self.killed >= self._moments:
                return
            await self._traffic.wait_for_runs()
            await asyncio.sleep(self._chance.uniform(0, 1.2 * self._traffic.run_seconds))
            self.killed += self._traffic.open > 0
            self.runs += self._traffic.open
            await asyncio.to_thread(worker.kill)
            await asyncio.to_thread(worker.start)
            self._traffic.wake()


async def test_no_run_is_done_twice_whenever_a_worker_is_killed(cluster: RunningCluster) -> None:
    server: RunningServer = cluster.server()
    workers = [WarmWorker(cluster.nats, f"w{number}") for number in range(_WORKERS)]
    web = Web()
    with serving(web):
        try:
            for worker in workers:
                worker.start()
            wait_for_workers(server, _WORKERS)
            traffic = Traffic(connect(server.url, server.key), web)
            killer = Killer(traffic, sampling.amount(6, whole=500))
            async with asyncio.TaskGroup() as group:
                group.create_task(traffic.flow())
                await killer.end_all(workers)
                traffic.end()
        finally:
            for worker in workers:
                worker.kill()
    effects = Counter(int(str(asked["path"]).rpartition("/")[2]) for asked in web.requests)
    ends = Counter(traffic.ends.values())
    print(
        f"{killer.killed} moments with {killer.runs} runs under way, {len(traffic.ends)} in all: {dict(ends)}; "
        f"{sum(effects.values())} effects"
    )
    assert max(effects.values()) == 1
    assert set(ends) <= {"ok", "lost", "refused"}
    assert ends["ok"] > 0
    assert all(effects[number] == 1 for number, end in traffic.ends.items() if end == "ok")
    assert all(effects[number] == 0 for number, end in traffic.ends.items() if end == "refused")
