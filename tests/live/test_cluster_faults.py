"""Workers that die, hang, end or are cut off: each run has one typed end, and nothing is done twice."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import sampling
from hood_cluster import RunningCluster, WorkerProcess, running_cluster, wait_for_workers, wait_until, wait_until_gone
from hood_server import TENANT, RunningServer
from live.loaded_hood import run_hood

from fumehood import Policy
from fumehood.audit.store import Query
from fumehood.cluster.workspace_calls import HANDLERS as WORKSPACE_CALLS
from fumehood.errors import DeniedError, FumehoodError, UsageError
from fumehood.events import Finished
from fumehood.remote.calls import ask
from fumehood.remote.sandbox import RemoteSandbox
from fumehood.remote.server import Server, connect
from fumehood.results import Cause, RunResult

pytestmark = pytest.mark.anyio
_SECONDS = 30
SLEEP = "import time; print('begun', flush=True); time.sleep(60)"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster() as running:
        yield running


@pytest.fixture(scope="module")
def server(cluster: RunningCluster) -> RunningServer:
    return cluster.server()


@pytest.fixture
def hood(server: RunningServer) -> Server:
    return connect(server.url, server.key)


@pytest.fixture
def worker(cluster: RunningCluster, server: RunningServer, request: pytest.FixtureRequest) -> Iterator[WorkerProcess]:
    started = cluster.worker("w" + format(abs(hash(request.node.name)), "x")[:12])
    wait_for_workers(server, 1)
    yield started
    started.kill()
    wait_until_gone(server)


async def begun(box: RemoteSandbox, code: str = SLEEP) -> asyncio.Task[RunResult]:
    """A run that is under way: the program has said so."""
    started, done = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def follow() -> RunResult:
        async for event in box.stream(code):
            started.set()
            if isinstance(event, Finished):
                done.set_result(event.result)
        return done.result()

    task = asyncio.ensure_future(follow())
    async with asyncio.timeout(_SECONDS):
        await started.wait()
    return task


def new_epoch(server: RunningServer, before: dict[str, object]) -> dict[str, object]:
    wait_until(lambda: any(int(str(each["epoch"])) > int(str(before["epoch"])) for each in server.workers()))
    return server.workers()[0]


def ended(server: RunningServer, identifier: str) -> tuple[int, dict[str, object]]:
    parts = urlsplit(server.url)
    with closing(HTTPConnection(parts.hostname or "", parts.port)) as connection:
        connection.request("GET", f"/v1/sandboxes/{identifier}", headers={"Authorization": f"Bearer {server.key}"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())


async def test_a_killed_worker_is_a_typed_end_that_says_what_is_not_known(
    server: RunningServer, hood: Server, worker: WorkerProcess
) -> None:
    async with hood.sandbox() as box:
        run = await begun(box)
        worker.kill()
        async with asyncio.timeout(_SECONDS):
            result = await run
        assert (result.cause, f"worker {worker.name} has ended" in str(result.detail)) == (Cause.LOST, True)
        assert "not known" in str(result.detail)
        identifier = box.id
        wait_until(lambda: ended(server, identifier)[0] == 410)
        assert "lost" in json.dumps(ended(server, identifier)[1])


async def test_a_named_sandbox_goes_on_at_another_worker_with_what_was_saved(
    cluster: RunningCluster, server: RunningServer, hood: Server
) -> None:
    """Its store is the server's. What was not saved is lost with the worker, and nothing else."""
    policy = Policy(filesystem={"outputs": ["**"]})
    first = cluster.worker("first")
    wait_for_workers(server, 1)
    async with hood.open("notes", policy, create=True) as box:
        await box.files.write("kept", "saved")
        await box.save()
        await box.files.write("kept", "not saved")
        first.kill()
    wait_until_gone(server)
    second = cluster.worker("second")
    wait_for_workers(server, 1)
    async with hood.open("notes") as box:
        assert await box.files.read("kept") == b"saved"
        await box.files.write("kept", "at the second")
    async with hood.open("notes") as box:
        assert await box.files.read("kept") == b"at the second"
        copies = await box.fork(2)
        for copy in copies:
            async with copy:
                assert await copy.files.read("kept") == b"at the second"
    second.kill()
    wait_until_gone(server)


async def test_a_client_cannot_have_the_whole_workspace_as_its_server_can(hood: Server, worker: WorkerProcess) -> None:
    async with hood.sandbox() as box:
        await box.run("open('inner', 'w').write('not an output')")
        for call in WORKSPACE_CALLS:
            with pytest.raises(UsageError, match="the server does not know"):
                await ask(box._connection.conversations, {"do": call, "what": "it"})  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(DeniedError):
            await box.files.read("inner")


async def test_a_run_goes_on_while_nats_is_away_for_a_moment(
    cluster: RunningCluster, hood: Server, worker: WorkerProcess
) -> None:
    async with hood.sandbox() as box:
        run = await begun(box, "print('begun', flush=True); input(); print('ended')")
        code = "open('written', 'a').write('once')"
        cluster.nats.kill()
        waiting = asyncio.ensure_future(box.run(code))
        cluster.nats.start()
        async with asyncio.timeout(_SECONDS):
            assert (await waiting).ok
            assert (await run).exit_code == 1  # there was no input
        assert (await box.run(argv=["cat", "written"])).stdout == "once"


async def test_a_worker_whose_line_was_cut_begins_anew(
    server: RunningServer, hood: Server, worker: WorkerProcess
) -> None:
    """NATS says that it is gone. Its process lives, and must not go on under the epoch that servers hold for lost."""
    [before] = server.workers()
    async with hood.sandbox() as box:
        run = await begun(box)
        worker.line.cut()
        async with asyncio.timeout(_SECONDS):
            assert (await run).cause == Cause.LOST
    after = new_epoch(server, before)
    assert after["free"] == after["slots"]
    async with hood.sandbox() as box:
        assert (await box.run("print(1)")).stdout == "1\n"


async def test_a_worker_drains_when_it_is_asked_to_end(
    server: RunningServer, hood: Server, worker: WorkerProcess
) -> None:
    async with hood.sandbox() as box:
        worker.process.send_signal(signal.SIGTERM)
        wait_until(lambda: server.workers()[0]["state"] == "draining")
        assert (await box.run("print('still here')")).stdout == "still here\n"
    assert worker.terminate() == 0


async def test_two_servers_and_one_slot(cluster: RunningCluster, server: RunningServer, hood: Server) -> None:
    """The worker decides. The one that comes second waits, and is served when the first is done."""
    second = cluster.server()
    worker = cluster.worker("single", "--slots", "1")
    for each in (server, second):
        wait_for_workers(each, 1)
    other, open_now, most = connect(second.url, second.key), 0, 0

    async def use(place: Server) -> str:
        nonlocal open_now, most
        async with place.sandbox() as box:
            open_now += 1
            most = max(most, open_now)
            result = await box.run("print(6 * 7)")
            open_now -= 1
            return result.stdout

    outputs = await asyncio.gather(*(use(place) for place in (hood, other) * 3))
    assert (set(outputs), most) == ({"42\n"}, 1)
    worker.kill()
    wait_until_gone(server)


async def test_a_worker_of_one_tenant_gets_nothing_of_others(
    cluster: RunningCluster, server: RunningServer, hood: Server
) -> None:
    worker = cluster.worker("of-globex", tenants=("globex",))
    wait_for_workers(server, 1)
    with pytest.raises(FumehoodError, match=f"no worker of the cluster has the backend .* for tenant {TENANT}"):
        await hood.run("print(1)")
    worker.kill()
    wait_until_gone(server)


def verified(log: Path, *options: str) -> tuple[int, str]:
    done = run_hood("audit", "verify", log, *options)
    return done.returncode, done.stdout + done.stderr


async def test_a_worker_cannot_take_back_records_that_the_server_has_seen_signed(
    server: RunningServer, hood: Server, worker: WorkerProcess, tmp_path: Path
) -> None:
    log, older = worker.folder / "worker" / "tenants" / TENANT / "audit", tmp_path / "older"
    await hood.run("print(1)")
    wait_until(lambda: newest_witnessed(server, worker) > 0)
    await asyncio.to_thread(shutil.copytree, log, older)
    await hood.run("print('this is to be forgotten')")
    assert worker.terminate() == 0
    wait_until(lambda: newest_witnessed(server, worker) == worker.log_of(TENANT).head().seq)
    kinds = [record.kind for record in worker.log_of(TENANT).find(Query())]
    assert {"sandbox.opened", "run.finished"} <= set(kinds)
    assert verified(log, "--fleet", str(server.log.folder))[0] == 0
    assert verified(older)[0] == 0  # an older copy is whole in itself
    code, said = verified(older, "--fleet", str(server.log.folder))
    assert (code, "rolled back, or cut off" in said) == (1, True), said
    code, said = verified(server.log.folder, "--fleet", str(server.log.folder))
    assert (code, "has seen no checkpoint of this log" in said) == (2, True), said


def newest_witnessed(server: RunningServer, worker: WorkerProcess) -> int:
    """The number of the newest record of the worker's log that the server has seen signed."""
    records = server.log.find(Query(kind="checkpoint.witnessed"))
    return max((record.data["number"] for record in records if record.data["worker"] == worker.name), default=0)


@pytest.mark.skipif(not sampling.is_whole(), reason="takes as long as a lease: in make test-all")
async def test_a_worker_that_hangs_is_lost_and_nothing_of_its_old_epoch_is_accepted(
    server: RunningServer, hood: Server, worker: WorkerProcess
) -> None:
    [before] = server.workers()
    async with hood.sandbox() as box:
        run = await begun(box)
        worker.process.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(60):
            result = await run
        assert (result.cause, f"worker {worker.name} has not been heard" in str(result.detail)) == (Cause.LOST, True)
        worker.process.send_signal(signal.SIGCONT)
    after = new_epoch(server, before)
    assert after["free"] == after["slots"]
