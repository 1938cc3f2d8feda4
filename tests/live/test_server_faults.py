"""A server whose database, disk, clock or clients fail: nothing is done that is not recorded, and it goes on after."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import httpx
import postgresql
import pytest
import sampling
from e2b import AsyncSandbox as E2bSandbox
from e2b.exceptions import SandboxException, ServiceBusyException
from live.server_process import ServerFolder, ServerProcess, TenantKeys
from live.traces import private_kib, wait_until
from requirements import require

import fumehood
from fumehood.errors import FumehoodError, LostError
from fumehood.events import Finished
from fumehood.remote.sandbox import RemoteSandbox
from fumehood.results import Cause
from fumehood.server.identity.keys import e2b_spelling

TEXT = "version: 1\nfilesystem: {outputs: ['**']}\nresources: {timeout: 10m}\n"
POLICY = {"base": TEXT, "kept": TEXT + "audit: {output: full}\n"}
# More than there is room for, where all of it is to be kept.
LARGE = "import os; input(); print(os.urandom(500_000).hex())"
ENDLESS = "import os\nwhile True: os.write(1, b'x' * 65536)"
STEADY = "import time\nwhile True: print('x', flush=True); time.sleep(0.05)"
READERS = sampling.amount(6, whole=51)
ALLOWED_GROWTH_KIB = 48 * 1024
SECONDS = 60.0
PAUSE_SECONDS = 0.05
CLIENT = """
import asyncio, fumehood
async def main():
    async with fumehood.connect() as hood, hood.sandbox("base") as box:
        async for event in box.stream({code!r}):
            print("up", flush=True)
asyncio.run(main())
"""
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
/* The wall clock of the system, an hour back as soon as there is a certain file. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (clock == CLOCK_REALTIME && access(getenv("SET_BACK"), F_OK) == 0) now->tv_sec -= 3600;
    return result;
}
"""


Served = tuple[ServerProcess, TenantKeys, httpx.Client]


@asynccontextmanager
async def a_server(folder: ServerFolder, *, from_nothing: bool = False, **settings: object) -> AsyncIterator[Served]:
    keys = await asyncio.to_thread(folder.add_tenant, "acme", POLICY)
    with folder.served(settings, from_nothing=from_nothing) as server, server.client(keys.own) as client:
        yield server, keys, client


async def wait_for(condition: Callable[[], object], what: str) -> None:
    await asyncio.to_thread(wait_until, condition, SECONDS, what)


@pytest.fixture(scope="module")
def postgres() -> Iterator[postgresql.PostgresServer]:
    with postgresql.running() as server:
        yield server


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_without_its_database_nothing_starts_and_with_it_everything_goes_on(
    postgres: postgresql.PostgresServer, tmp_path: Path, how: str
) -> None:
    folder = ServerFolder.at(tmp_path / "state", postgres.create_database())
    keys = await asyncio.to_thread(folder.add_tenant, "acme", POLICY)
    with folder.served() as server, server.client(keys.own) as client:
        hood = fumehood.connect(server.url, keys.own)
        async with hood.sandbox("base") as closed, hood.sandbox("base") as box, aclosing(box.stream(STEADY)) as stream:
            await anext(stream)
            getattr(postgres, how)()
            try:
                await wait_for(lambda: not server.is_ready(), "it is not ready")
                assert client.post("/sandboxes", json={}).status_code == 503
                with pytest.raises(LostError):
                    await hood.run("print(1)")
                with pytest.raises(ServiceBusyException):
                    await E2bSandbox.create("base", **server.e2b_options(keys.e2b))
                await anext(stream)  # what was under way goes on
                await starts_nothing(box)
                await closed.__aexit__(None, None, None)
            finally:
                postgres.start()
            await wait_for(server.is_ready, "it is ready again")
            await anext(stream)
            await wait_for(lambda: len(client.get("/sandboxes").json()) == 1, "the end of the other is known")
            await starts_again(box)
        opened = client.post("/sandboxes", json={}).raise_for_status().json()
        assert client.delete(f"/sandboxes/{opened['id']}").status_code == 204
    folder.check_audit("acme")


async def starts_nothing(box: RemoteSandbox) -> None:
    """From the server's next look at the database on."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                assert (await box.run("print(1)")).ok
            except FumehoodError:
                break
            await asyncio.sleep(PAUSE_SECONDS)
    with pytest.raises(FumehoodError, match="starts nothing meanwhile"):
        await box.run("print(1)")


async def starts_again(box: RemoteSandbox) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            with suppress(FumehoodError):
                assert (await box.run("print(1)")).ok
                return
            await asyncio.sleep(PAUSE_SECONDS)


@pytest.mark.anyio
async def test_a_client_that_is_killed_while_it_streams_leaves_no_run(tmp_path: Path) -> None:
    folder = ServerFolder.at(tmp_path / "state")
    async with a_server(folder, sandboxes={"linger": "500ms"}) as (server, keys, client):
        await asyncio.to_thread(kill_client, server, keys)
        await wait_for(lambda: client.get("/sandboxes").json() == [], "the sandbox is closed")
        opened = client.post("/sandboxes", json={"policy": "base"}).raise_for_status().json()["id"]
        headers = {"Accept": "application/x-ndjson"}
        with client.stream("POST", f"/sandboxes/{opened}/runs", json={"code": ENDLESS}, headers=headers) as answer:
            next(answer.iter_raw())
        await wait_for(lambda: ends_of_runs(folder) == 2, "both runs have ended")


def kill_client(server: ServerProcess, keys: TenantKeys) -> None:
    variables = {**os.environ, "FUMEHOOD_SERVER": server.url, "FUMEHOOD_KEY": keys.own}
    command = [sys.executable, "-c", CLIENT.format(code=ENDLESS)]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        client.stdout.readline()
        client.kill()


def ends_of_runs(folder: ServerFolder) -> int:
    return sum(record.kind in ("run.finished", "run.broke") for record in folder.records("acme"))


@pytest.mark.anyio
async def test_clients_that_do_not_read_cost_the_server_no_memory(tmp_path: Path) -> None:
    async with AsyncExitStack() as streams:
        stack, folder = streams.enter_context(ExitStack()), ServerFolder.at(tmp_path / "state")
        server, keys, client = await streams.enter_async_context(a_server(folder, from_nothing=True))
        async with fumehood.connect(server.url, keys.own).sandbox("base") as box:
            remote = await E2bSandbox.create("base", timeout=600, **server.e2b_options(keys.e2b))
            opened = client.post("/sandboxes", json={"policy": "base"}).raise_for_status().json()["id"]
            before = private_kib(server.pid)
            for _ in range(READERS // 3):
                stack.enter_context(not_reading(server, keys, opened))
                await anext(await streams.enter_async_context(aclosing(box.stream(ENDLESS))))
                stack.enter_context(not_reading_e2b(server, remote))
            await wait_for(lambda: quiet(server.pid), "its programs wait for their readers")
            assert private_kib(server.pid) - before < ALLOWED_GROWTH_KIB
            assert server.is_ready()


def quiet(process: int) -> bool:
    """Whether it uses no processor time any more: everything that can be read has been."""

    def used() -> int:
        return sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]))

    before, _ = used(), threading.Event().wait(0.3)
    return used() - before <= 2


@contextmanager
def not_reading(server: ServerProcess, keys: TenantKeys, opened: str) -> Iterator[None]:
    body = json.dumps({"code": ENDLESS}).encode()
    headers = f"Authorization: Bearer {keys.own}\r\nAccept: application/x-ndjson"
    with _asked(server.url, f"/v1/sandboxes/{opened}/runs", headers, "application/json", body):
        yield


@contextmanager
def not_reading_e2b(server: ServerProcess, box: E2bSandbox) -> Iterator[None]:
    message = json.dumps({"process": {"cmd": "python3", "args": ["-c", ENDLESS]}}).encode()
    headers = (
        f"E2b-Sandbox-Id: {box.sandbox_id}\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: {box.traffic_access_token}"
    )
    body = b"\0" + len(message).to_bytes(4, "big") + message
    with _asked(server.e2b_url, "/process.Process/Start", headers, "application/connect+json", body):
        yield


@contextmanager
def _asked(url: str, path: str, headers: str, kind: str, body: bytes) -> Iterator[None]:
    place = httpx.URL(url)
    head = f"POST {path} HTTP/1.1\r\nHost: {place.host}\r\n{headers}\r\nContent-Type: {kind}\r\n"
    with socket.create_connection((place.host, place.port or 80)) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert connection.recv(12) == b"HTTP/1.1 200"
        yield


@pytest.mark.anyio
async def test_a_key_that_is_revoked_ends_what_it_streams(tmp_path: Path) -> None:
    async with a_server(ServerFolder.at(tmp_path / "state")) as (server, keys, client):
        async with fumehood.connect(server.url, keys.own).sandbox("base") as box:
            stream = box.stream(STEADY)
            await anext(stream)
            remote = await E2bSandbox.create("base", timeout=600, **server.e2b_options(keys.e2b))
            command = await remote.commands.run("while true; do echo x; sleep 0.05; done", background=True)
            theirs = server.e2b_options(e2b_spelling(keys.second))
            shared = await E2bSandbox.create("base", timeout=600, **theirs)
            joined = await E2bSandbox.connect(shared.sandbox_id, **server.e2b_options(keys.e2b))
            reading = await joined.commands.run("while true; do echo x; sleep 0.05; done", background=True)
            opened = client.post("/sandboxes", json={"policy": "base"}).raise_for_status().json()["id"]
            headers = {"Accept": "application/x-ndjson"}
            with client.stream("POST", f"/sandboxes/{opened}/runs", json={"code": STEADY}, headers=headers) as answer:
                lines = answer.iter_lines()
                next(lines)
                with server.client(keys.second) as other:
                    assert other.delete(f"/keys/{keys.own.split('_')[1]}").status_code == 204
                last = json.loads(list(lines)[-1])
            assert last["type"] in ("failed", "finished")
            events = [event async for event in stream]
            assert isinstance(events[-1], Finished)
            assert events[-1].result.cause is Cause.LOST
            for each in (command, reading):
                with pytest.raises((SandboxException, httpx.HTTPError)):
                    await each.wait()
            with pytest.raises(SandboxException):
                await joined.commands.run("echo 1")
            assert (await shared.commands.run("echo 1")).stdout == "1\n"  # which another key has opened
        assert client.get("/sandboxes").status_code == 401
        with server.client(keys.second) as other:
            gone = other.get(f"/sandboxes/{opened}")
            assert (gone.status_code, gone.json()["cause"]) == (410, "revoked")


@pytest.mark.anyio
async def test_a_full_disk_withholds_results_until_there_is_room(tmp_path: Path) -> None:
    require(os.geteuid() == 0, "needs root, to mount a small file system")
    with small_disk(tmp_path / "state") as state:
        folder = ServerFolder.at(state, f"sqlite:///{tmp_path}/server.db")
        async with a_server(folder) as (server, _, client):
            place = f"/sandboxes/{client.post('/sandboxes', json={'policy': 'kept'}).json()['id']}"
            assert client.post(f"{place}/runs", json={"code": "print(1)"}).status_code == 200
            filler = state / "filler"
            background = client.post(f"{place}/runs", json={"code": LARGE, "background": True}).json()
            fill(filler)
            assert not server.is_ready()
            refused = client.post(f"{place}/runs", json={"code": "print(1)"})
            assert (refused.status_code, "audit log" in refused.json()["detail"]) == (503, True)
            assert str(state) not in refused.text
            client.post(f"/runs/{background['id']}/input", json={"data": "x\n"})
            withheld = client.get(f"/runs/{background['id']}?wait=20")
            assert withheld.status_code == 503, withheld.text
            assert client.post("/sandboxes", json={}).status_code == 503
            filler.unlink()
            await wait_for(server.is_ready, "it is ready again")
            assert client.post(f"{place}/runs", json={"code": "print(2)"}).json()["stdout"] == "2\n"
            assert client.delete(place).status_code == 204
            folder.check_audit("acme")


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=0700", "hood-test", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(path: Path) -> None:
    """Until not one byte more fits."""
    with suppress(OSError), path.open("wb", buffering=0) as stream:
        for size in (1 << 20, 4096, 1):
            with suppress(OSError):
                while stream.write(bytes(size)):
                    pass


@pytest.mark.anyio
async def test_a_clock_that_is_set_back_lengthens_no_life_and_breaks_no_record(tmp_path: Path) -> None:
    require(shutil.which("cc"), "needs a compiler")
    library, mark = compiled(tmp_path / "clock.c", CLOCK), tmp_path / "set-back"
    folder = ServerFolder.at(tmp_path / "state")
    keys = await asyncio.to_thread(folder.add_tenant, "acme", POLICY)
    with folder.served(variables={"LD_PRELOAD": str(library), "SET_BACK": str(mark)}) as server:
        hood = fumehood.connect(server.url, keys.own)
        async with hood.sandbox("base") as other, hood.with_sandboxes(lifetime="8s").sandbox("base") as box:
            stream = box.stream(STEADY)
            await anext(stream)
            mark.touch()
            async with asyncio.timeout(SECONDS):
                events = [event async for event in stream]
            assert isinstance(events[-1], Finished)
            assert events[-1].result.cause is Cause.LOST
            assert (await other.run("print(1)")).ok
    times = [record.time for record in folder.records("acme")]
    assert times != sorted(times)  # it was set back
    with folder.served():
        folder.check_audit("acme")


def compiled(source: Path, text: str) -> Path:
    """A library, to be loaded before all others."""
    library = source.with_suffix(".so")
    source.write_text(text)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library
