"""Workers that are killed again and again while runs go on: each run has one typed end, and no effect is had twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator

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
_WORKERS, _CLIENTS = 3, 6
_PAUSE_SECONDS = 1.5


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
        self._is_over, self._is_there = False, asyncio.Event()
        self.ends: dict[int, str] = {}
        self.open = 0
        """Runs that are under way."""

    async def flow(self) -> None:
        await asyncio.gather(*(self._client() for _ in range(_CLIENTS)))

    def end(self) -> None:
        self._is_over = True
        self._is_there.set()

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
                try:
                    result = await box.run(code)
                    return "ok" if result.ok else str(result.cause)
                finally:
                    self.open -= 1
        except FumehoodError:
            return "refused"


class Killer:
    """Ends each worker again and again, after a random time, whatever it is doing."""

    def __init__(self, traffic: Traffic, moments: int) -> None:
        self._traffic, self._moments, self._chance = traffic, moments, random.Random(19)
        self.killed = 0
        """Moments at which runs were under way."""

    async def end_all(self, workers: list[WarmWorker]) -> None:
        await asyncio.gather(*map(self._end_often, workers))

    async def _end_often(self, worker: WarmWorker) -> None:
        while self.killed < self._moments:
            await asyncio.sleep(self._chance.uniform(0, _PAUSE_SECONDS))
            self.killed += self._traffic.open > 0
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
    print(f"{killer.killed} moments, {len(traffic.ends)} runs: {dict(ends)}; {sum(effects.values())} effects")
    assert max(effects.values()) == 1
    assert set(ends) <= {"ok", "lost", "refused"}
    assert ends["ok"] > 0
    assert all(effects[number] == 1 for number, end in traffic.ends.items() if end == "ok")
    assert all(effects[number] == 0 for number, end in traffic.ends.items() if end == "refused")
