"""Workers behind bad lines, a NATS that is gone for long, a server that is killed: runs end in time, and once.

Leases are short here, so that what takes as long as one does not take long.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import sampling
from cluster_nats import NatsServer
from hood_cluster import RunningCluster, running_cluster, wait_for_workers, wait_until
from hood_server import RunningServer
from live.server_process import ServerFolder
from live.warm_workers import WarmWorker
from tcp_line import TcpLine
from upstreams import Web, serving

from fumehood import Policy
from fumehood.cluster.lease import LeaseTimes
from fumehood.errors import FumehoodError
from fumehood.remote.server import Server, connect
from fumehood.server.fleet import fleet as fleet_module

pytestmark = pytest.mark.anyio
_SECONDS = 60
TIMES = LeaseTimes(6)
BEAT = """
import contextlib, time, urllib.request
while True:
    with contextlib.suppress(OSError):  # it would end by itself when it is refused
        urllib.request.urlopen("http://127.0.0.1:{port}/{name}").read()
    time.sleep(0.2)
"""
ONCE = "import urllib.request; urllib.request.urlopen('http://127.0.0.1:{port}/{name}').read()"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster() as running:
        yield running


@pytest.fixture(scope="module")
def server(cluster: RunningCluster) -> Iterator[RunningServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet_module, "Fleet", partial(fleet_module.Fleet, times=TIMES))
        yield cluster.server()


@pytest.fixture
def hood(server: RunningServer) -> Server:
    return connect(server.url, server.key)


@pytest.fixture
def web() -> Iterator[Web]:
    with serving(made := Web()):
        yield made


class Workers:
    """Each with a line of its own."""

    def __init__(self, nats: NatsServer, stack: ExitStack) -> None:
        self._nats, self._stack = nats, stack
        self.lines: dict[str, TcpLine] = {}

    def start(self, name: str, *, slots: int = 16, line: TcpLine | None = None) -> WarmWorker:
        line = self.lines[name] = line or TcpLine(self._nats.port)
        worker = WarmWorker(self._nats, name, slots=slots, times=TIMES, line=line)
        self._stack.callback(line.close)
        self._stack.callback(worker.kill)
        worker.start()
        return worker


@pytest.fixture
def workers(cluster: RunningCluster, server: RunningServer) -> Iterator[Workers]:
    with ExitStack() as stack:
        yield Workers(cluster.nats, stack)
    wait_until(lambda: not server.workers())


def allowing(web: Web) -> Policy:
    return Policy(network={"allow": [{"host": "127.0.0.1", "ports": [web.port], "private": True}]})


def effects(web: Web) -> Counter[str]:
    return Counter(str(asked["path"]).removeprefix("/") for asked in web.requests)


async def beat(hood: Server, web: Web, name: str) -> tuple[str, int]:
    """Has an effect again and again: how that ended, and how many there were when the end was known."""
    async with hood.sandbox(allowing(web)) as box:
        result = await box.run(BEAT.format(port=web.port, name=name))
        return str(result.cause), effects(web)[name]


async def until(holds: object) -> None:
    await asyncio.to_thread(wait_until, holds)  # pyright: ignore[reportArgumentType]


async def test_a_slow_line_that_stalls_costs_no_lease_and_no_run(
    cluster: RunningCluster, server: RunningServer, hood: Server, web: Web, workers: Workers
) -> None:
    workers.start("slow", line=TcpLine(cluster.nats.port, delay=0.02, stall=0.4, stalls_one_in=10))
    wait_for_workers(server, 1)
    [before] = server.workers()

    async def use(number: int) -> bool:
        async with hood.sandbox(allowing(web)) as box:
            return (await box.run(ONCE.format(port=web.port, name=number))).ok

    count = sampling.amount(4, whole=100)
    done = [ok for first in range(0, count, 4) for ok in await asyncio.gather(*map(use, range(first, first + 4)))]
    assert (all(done), effects(web)) == (True, Counter(map(str, range(count))))
    assert server.workers()[0]["epoch"] == before["epoch"]


async def test_what_cannot_be_renewed_is_over_before_servers_hold_it_for_lost(
    server: RunningServer, hood: Server, web: Web, workers: Workers
) -> None:
    """Four faults at once, each at a worker of its own: no effect comes after the end that the caller was told."""
    names = ("to-nats", "from-nats", "both", "stopped")
    started = {name: workers.start(name, slots=1) for name in names}
    wait_for_workers(server, len(names))
    before = {str(each["name"]): int(str(each["epoch"])) for each in server.workers()}
    beats = [asyncio.ensure_future(beat(hood, web, str(number))) for number in range(len(names))]
    await until(lambda: len(effects(web)) == len(names))
    workers.lines["to-nats"].hold("up")
    workers.lines["from-nats"].hold("down")
    workers.lines["both"].hold("up", "down")
    started["stopped"].signal(signal.SIGSTOP)
    async with asyncio.timeout(_SECONDS):
        ends = await asyncio.gather(*beats)
    assert [cause for cause, _ in ends] == ["lost"] * len(names)
    for line in workers.lines.values():
        line.release()
    started["stopped"].signal(signal.SIGCONT)
    await until(lambda: len(server.workers()) == len(names))
    for worker in server.workers():
        assert (int(str(worker["epoch"])) > before[str(worker["name"])], worker["free"]) == (True, 1)
    assert effects(web) == Counter({str(number): count for number, (_, count) in enumerate(ends)})


async def test_a_line_that_is_reset_again_and_again(
    server: RunningServer, hood: Server, web: Web, workers: Workers
) -> None:
    """Each reset costs what the worker had open, and nothing is done again."""
    workers.start("reset")
    ends: Counter[str] = Counter()
    for number in range(sampling.amount(2, whole=30)):
        wait_for_workers(server, 1)
        running = asyncio.ensure_future(beat(hood, web, str(number)))
        await until(lambda number=number: effects(web)[str(number)] > 0)
        workers.lines["reset"].cut()
        async with asyncio.timeout(_SECONDS):
            ends[(await running)[0]] += 1
    assert set(ends) == {"lost"}
    wait_for_workers(server, 1)
    counted = effects(web)  # a worker comes back without what it had; until then its last run may have gone on
    assert (await hood.run("print(6 * 7)")).stdout == "42\n"
    assert effects(web) == counted


async def test_workers_begin_anew_after_all_of_nats_was_gone_for_longer_than_a_lease(
    cluster: RunningCluster, server: RunningServer, hood: Server, web: Web, workers: Workers
) -> None:
    for name in ("one", "two"):
        workers.start(name, slots=1)
    wait_for_workers(server, 2)
    before = {str(each["name"]): int(str(each["epoch"])) for each in server.workers()}
    beats = [asyncio.ensure_future(beat(hood, web, str(number))) for number in range(2)]
    await until(lambda: len(effects(web)) == 2)
    cluster.nats.kill()
    try:
        async with asyncio.timeout(_SECONDS):
            ends = await asyncio.gather(*beats)
        with pytest.raises(FumehoodError):
            await hood.run("print('nowhere')")
    finally:
        cluster.nats.start()
    assert [cause for cause, _ in ends] == ["lost", "lost"]
    wait_for_workers(server, 2)
    for worker in server.workers():
        assert int(str(worker["epoch"])) > before[str(worker["name"])]
    assert (await hood.run("print(6 * 7)")).stdout == "42\n"
    assert effects(web) == Counter({str(number): count for number, (_, count) in enumerate(ends)})


async def test_what_a_killed_server_had_on_workers_ends_there(
    cluster: RunningCluster, server: RunningServer, web: Web, workers: Workers, tmp_path: Path
) -> None:
    """The worker ends it, the next life of the server records it as lost, and the client has one end."""
    workers.start("orphaned", slots=2)
    wait_for_workers(server, 1)
    folder = ServerFolder.at(tmp_path / "state")
    keys = await asyncio.to_thread(folder.add_tenant, "acme")
    settings = {"cluster": str(cluster.nats.folder), "strict": False, "private_networks": ["acme"]}
    with folder.served(settings) as first:
        running = asyncio.ensure_future(beat(connect(first.url, keys.own), web, "orphan"))
        await until(lambda: effects(web)["orphan"] > 0)
        first.process.kill()
    await until(lambda: server.workers()[0]["free"] == 2)
    counted = effects(web)
    with folder.served(settings) as second:
        async with asyncio.timeout(_SECONDS):
            assert (await running)[0] == "lost"
        assert (await connect(second.url, keys.own).run("print(6 * 7)")).stdout == "42\n"
        await until(lambda: "lost" in {cause for _, _, _, cause in folder.rows()})
    assert effects(web) == counted
    assert Counter(cause for _, _, _, cause in folder.rows()) == Counter({"lost": 1, "closed": 1})
