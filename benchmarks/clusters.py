"""Runs through a server, NATS and a worker, beside the same in this process; and how soon a dead worker is known."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks import placements
from benchmarks.nats_process import PROGRAM, free_port
from fumehood.cli.bench.measurement import Row, in_turns
from fumehood.cli.bench.runs import runner
from fumehood.policy import Policy
from fumehood.remote.server import Server, connect
from fumehood.sandbox.async_sandbox import AsyncSandbox

_HOOD = [sys.executable, "-m", "fumehood"]
_DEATHS = 5
_ANNOUNCEMENT_SECONDS = 1.5


async def measure(rounds: int) -> AsyncIterator[Row]:
    if PROGRAM is None:
        yield Row("a run through server, NATS and worker / here", missing="there is no nats-server")
        return
    with tempfile.TemporaryDirectory(prefix="hood-bench-", dir="/var/tmp") as disk, _cluster(Path(disk)) as cluster:
        async for row in _runs(cluster.hood, Path(disk), rounds):
            yield row
        yield await _deaths(cluster)
    with tempfile.TemporaryDirectory(prefix="hood-bench-", dir="/var/tmp") as disk:
        async for row in placements.measure(Path(disk)):
            yield row


class _Cluster:
    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        place = str(folder / "cluster")
        nats = self._hood("cluster", "init", "--here", "--listen", f"127.0.0.1:{free_port()}", "--folder", place)
        config = next(line for line in nats.splitlines() if line.startswith("nats-server")).split()[-1]
        self._start([str(PROGRAM), "-c", config], until="Server is ready")
        serve = [
            "serve",
            "--cluster",
            place,
            "--init",
            "bench",
            "--listen",
            "127.0.0.1:0",
            "--config",
            self._settings(),
        ]
        said = self._start([*_HOOD, *serve], until="listening at")[0]
        # By default a tenant's calls wait for their turn from the fiftieth in a second on.
        self._hood("quota", "set", "bench", "requests_per_second", "100000", "--config", self._settings())
        given = dict(line.removeprefix("export ").split("=", 1) for line in said if line.startswith("export"))
        token = self._hood("cluster", "token", "w1", "--folder", place).strip()
        self._worker = [*_HOOD, "worker", "--folder", str(folder / "w1"), "--drain", "1s"]
        self.worker = self._start([*self._worker, "--join", token], until="is ready")[1]
        self.hood = connect(given["FUMEHOOD_SERVER"], given["FUMEHOOD_KEY"])

    def _settings(self) -> str:
        path = self._folder / "settings.yaml"
        path.write_text(f"state: {self._folder / 'state'}\nstrict: false\n")
        return str(path)

    def start_worker_again(self) -> None:
        self.worker = self._start(self._worker, until="is ready")[1]

    def _hood(self, *words: str) -> str:
        return subprocess.run([*_HOOD, *words], check=True, capture_output=True, text=True).stdout

    def _start(self, command: Sequence[str], until: str) -> tuple[list[str], subprocess.Popen[str]]:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=_plain())
        self._stack.callback(_end, process)
        said: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line.rstrip("\n"))
            if until in line:
                return said, process
        raise RuntimeError("\n".join(said))


def _plain() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("FUMEHOOD_SERVER")}


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@contextmanager
def _cluster(folder: Path) -> Iterator[_Cluster]:
    with ExitStack() as stack:
        cluster = _Cluster(folder, stack)
        time.sleep(_ANNOUNCEMENT_SECONDS)
        yield cluster


async def _runs(hood: Server, disk: Path, rounds: int) -> AsyncIterator[Row]:
    policy = Policy()
    async with hood.sandbox() as there, AsyncSandbox(policy, audit=disk / "own") as here:

        async def run_there() -> None:
            await there.run("print(1)")

        over, local = await in_turns(rounds, run_there, runner(here, "print(1)"))
        yield Row("a run through server, NATS and worker / here", over, against=local, budget="1.6 x")
        async with there.session() as session_there, here.session() as session_here:
            jobs = [partial(session.run, "print(1)") for session in (session_there, session_here)]
            over, local = await in_turns(rounds, *jobs)
            yield Row("a run in a session through all of them / here", over, against=local)

    async def open_there() -> None:
        async with hood.sandbox():
            pass

    async def open_here() -> None:
        async with AsyncSandbox(policy, audit=disk / "own"):
            pass

    over, local = await in_turns(rounds, open_there, open_here)
    yield Row("a sandbox opened and closed through all of them / here", over, against=local)


async def _deaths(cluster: _Cluster) -> Row:
    """From the signal to the typed end of the run at the client."""
    times: list[float] = []
    for _ in range(_DEATHS):
        async with cluster.hood.sandbox() as box:
            run = asyncio.ensure_future(box.run("import time; time.sleep(60)"))
            await asyncio.sleep(0.3)
            started = time.perf_counter()
            cluster.worker.kill()
            result = await run
            times.append((time.perf_counter() - started) * 1000)
            assert result.cause == "lost", result
        cluster.worker.wait()
        cluster.start_worker_again()
        await asyncio.sleep(_ANNOUNCEMENT_SECONDS)
    return Row(f"a killed worker, until the run's end is known (median of {_DEATHS})", sorted(times)[_DEATHS // 2])
