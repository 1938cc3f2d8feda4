"""A server that is killed (SIGKILL) while clients of three protocols work: nothing is left, nothing runs twice."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import postgresql
import pytest
import sampling
from e2b import AsyncSandbox as E2bSandbox
from e2b.exceptions import SandboxException
from live.server_process import ServerFolder, ServerProcess, TenantKeys
from live.traces import cgroups_of, cgroups_of_cells, descendants, is_alive, mounts, wait_until

import fumehood
from fumehood.errors import FumehoodError

KILLS = sampling.amount(1, whole=200)
LONGEST_SECONDS = 0.5
# The others are killed while sandboxes open.
AMONG_RUNS = 0.75
# Some are followed by servers that are killed while they start, and end what the one before had open.
WHILE_STARTING = 0.25
SECONDS_TO_START = 1.0
TENANTS = ("acme", "beta")
# What a client may see of a server that was killed and is back: its own kind of error, and in time.
TYPED = (httpx.TransportError, FumehoodError, SandboxException, httpx.HTTPStatusError)
END_CAUSES = {"closed", "lost", "abandoned", "failed", "protocol"}


class Effects(ThreadingHTTPServer):
    """Counts what programs have done outside, by the name that each has for it."""

    daemon_threads = True

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        super().__init__(("127.0.0.1", 0), _EffectHandler)

    @property
    def port(self) -> int:
        return self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """A sandbox that ends cuts its connections off."""


class _EffectHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        effects = self.server
        assert isinstance(effects, Effects)
        effects.seen[self.path.strip("/")] += 1
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def counting() -> Iterator[Effects]:
    effects = Effects()
    thread = threading.Thread(target=effects.serve_forever, daemon=True)
    thread.start()
    try:
        yield effects
    finally:
        effects.shutdown()
        effects.server_close()
        thread.join()


class Clients:
    """Everything that clients of one tenant do until the server is gone, and what they know of it."""

    def __init__(self, server: ServerProcess, keys: TenantKeys, effects: Effects) -> None:
        self._server, self._keys, self._effects = server, keys, effects
        self.sandboxes: list[str] = []
        self.done: list[str] = []
        """Effects of runs whose results have come."""
        self.repeatable: tuple[str, dict[str, object], dict[str, str]] | None = None
        """The last request that may be sent again."""
        self.used: list[str] = []
        """Approvals that were taken up."""
        self.has_server_ended = False
        self.strange: list[BaseException] = []
        """Errors that the end of a server is no reason for."""

    def effect(self) -> tuple[str, str]:
        """A name, and a program that does something outside by that name."""
        name, port = secrets.token_hex(6), self._effects.port
        request = f"POST /{name} HTTP/1.1\\r\\nHost: effects.example:{port}\\r\\nContent-Length: 0\\r\\n\\r\\n"
        return name, (
            f"import socket; s = socket.create_connection(('effects.example', {port}));"
            f" s.sendall(b'{request}'); s.recv(1); print('{name}')"
        )

    async def work(self) -> None:
        """Until none of them can go on."""
        parts = (self._http, self._channel, self._e2b, self._approvals)
        await asyncio.gather(*(self._until_lost(part) for part in parts))

    async def _until_lost(self, part: Callable[[], Awaitable[None]]) -> None:
        try:
            await part()
        except Exception as error:
            if not self.has_server_ended or not isinstance(error, TYPED):
                self.strange.append(error)

    def _client(self, key: str) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.AsyncClient(base_url=f"{self._server.url}/v1", headers=headers, timeout=30, verify=False)

    async def _http(self) -> None:
        async with self._client(self._keys.own) as client:
            opened = (await client.post("/sandboxes", json={"policy": "effects"})).raise_for_status().json()
            self.sandboxes.append(opened["id"])
            place = f"/sandboxes/{opened['id']}"
            while True:
                await self._once(client, f"{place}/runs")
                await self._stream(client, f"{place}/runs")
                (await client.put(f"{place}/files/x", content=b"x" * 4096)).raise_for_status()
                name, code = self.effect()
                body = {"code": code, "background": True}
                run = (await client.post(f"{place}/runs", json=body)).raise_for_status().json()
                state = (await client.get(f"/runs/{run['id']}?wait=10")).raise_for_status().json()
                self._note(state["result"]["stdout"], name)

    async def _once(self, client: httpx.AsyncClient, path: str) -> None:
        name, code = self.effect()
        body: dict[str, object] = {"code": code}
        headers = {"Idempotency-Key": name}
        self.repeatable = path, body, headers
        self._note((await client.post(path, json=body, headers=headers)).raise_for_status().json()["stdout"], name)

    async def _stream(self, client: httpx.AsyncClient, path: str) -> None:
        name, code = self.effect()
        headers = {"Accept": "application/x-ndjson"}
        async with client.stream("POST", path, json={"code": code}, headers=headers) as answer:
            async for line in answer.aiter_lines():
                if json.loads(line)["type"] == "finished":
                    self._note(name, name)

    def _note(self, output: str, name: str) -> None:
        assert output.strip() == name
        self.done.append(name)

    async def _channel(self) -> None:
        async with (
            fumehood.connect(self._server.url, self._keys.own) as hood,
            hood.sandbox("effects") as box,
            box.session() as session,
        ):
            while True:
                for run in (box.run, session.run):
                    name, code = self.effect()
                    result = await run(code)
                    if result.cause == "lost":
                        return
                    self._note(result.stdout, name)
                await box.files.write("x", b"x" * 4096)
                name, code = self.effect()
                background = await box.start(code)
                if (await background.wait()).cause == "lost":
                    return
                self.done.append(name)

    async def _e2b(self) -> None:
        options = self._server.e2b_options(self._keys.e2b)
        box = await E2bSandbox.create("effects", timeout=300, **options)
        self.sandboxes.append(box.sandbox_id)
        while True:
            name, code = self.effect()
            self._note((await box.commands.run(f'python3 -c "{code}"')).stdout, name)
            await box.files.write("x", b"x" * 4096)  # pyright: ignore[reportUnknownMemberType]  # a file of unknown kind

    async def _approvals(self) -> None:
        async with self._client(self._keys.own) as asking, self._client(self._keys.second) as answering:
            while True:
                code = f"print({secrets.randbits(64)})"
                question = {"policy": "asking", "tool": "python", "arguments": {"code": code}, "code": code}
                asked = (await asking.post("/approvals", json=question)).raise_for_status().json()
                place, digest = f"/approvals/{asked['id']}", {"digest": asked["digest"]}
                yes = {"approved": True, **digest}
                (await answering.post(place, json=yes)).raise_for_status()
                (await asking.post(f"{place}:use", json=digest)).raise_for_status()
                self.used.append(asked["id"])

    def check(self, server: ServerProcess) -> None:
        """After the server's return."""
        with server.client(self._keys.own) as client:
            for identifier in self.sandboxes:
                answer = client.get(f"/sandboxes/{identifier}")
                assert (answer.status_code, answer.json()["cause"]) == (410, "lost")
            if self.repeatable is not None:
                path, body, headers = self.repeatable
                assert client.post(path, json=body, headers=headers).status_code in (200, 409, 410)
            for identifier in self.used[-1:]:
                digest = {"digest": client.get(f"/approvals/{identifier}").json()["digest"]}
                assert client.post(f"/approvals/{identifier}:use", json=digest).status_code >= 400
        assert {name: self._effects.seen[name] for name in self.done} == dict.fromkeys(self.done, 1)


ASKING = "version: 1\napprovals: [{tool: python}]\n"


def policy(port: int) -> str:
    rule = f"{{host: effects.example, ports: [{port}], protocol: http, private: true}}"
    return f"version: 1\nfilesystem: {{outputs: ['**']}}\nnetwork: {{allow: [{rule}]}}\n"


def in_cgroups_of(process: int) -> list[Path]:
    """Processes that are in a cgroup which the process has made."""
    found: list[Path] = []
    for entry in Path("/proc").glob("[0-9]*/cgroup"):
        with suppress(OSError):
            if f"/fumehood-{process}-" in entry.read_text():
                found.append(entry.parent)
    return found


async def killed(server: ServerProcess, clients: Clients, begin: Callable[[], ServerProcess]) -> ServerProcess:
    """The server of the next life, when all clients of this one have ended."""
    working = asyncio.ensure_future(clients.work())
    if random.random() < AMONG_RUNS:
        await asyncio.to_thread(wait_until, lambda: clients.done, 60, "a run has ended")
    await asyncio.sleep(random.uniform(0, LONGEST_SECONDS))
    processes = descendants(server.pid)
    clients.has_server_ended = True
    server.process.kill()
    await asyncio.to_thread(server.process.wait)
    following = await asyncio.to_thread(begin)
    async with asyncio.timeout(60):
        await working
    await asyncio.to_thread(wait_until, lambda: not any(map(is_alive, processes)), 5.0, "its processes are gone")
    assert in_cgroups_of(server.pid) == []
    return following


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The address of one; None for the server's own file."""
    if request.param == "sqlite":
        yield None
        return
    with postgresql.running() as postgres:
        yield postgres.create_database()


@pytest.mark.serial
@pytest.mark.timeout(3600)
def test_a_server_killed_at_random_moments_leaves_nothing_and_does_nothing_twice(
    database: str | None, tmp_path: Path
) -> None:
    folder = ServerFolder.at(tmp_path / "state", database)
    with counting() as effects, ExitStack() as lives:
        keys = {name: folder.add_tenant(name, {"effects": policy(effects.port), "asking": ASKING}) for name in TENANTS}
        mounted, settings = mounts(), {"private_networks": TENANTS}

        def begin() -> ServerProcess:
            while random.random() < WHILE_STARTING:
                folder.killed_after(random.uniform(0, SECONDS_TO_START), settings)
            return lives.enter_context(folder.served(settings))

        older = cgroups_of_cells()
        server = begin()
        victims: list[int] = []
        for number in range(KILLS):
            name = TENANTS[number % len(TENANTS)]
            clients = Clients(server, keys[name], effects)
            victims.append(server.pid)
            server = asyncio.run(killed(server, clients, begin))
            assert not clients.strange, f"{clients.strange}\n{folder.earlier_log.read_text()[-5000:]}"
            clients.check(server)
            folder.check_audit(name)
            assert {cause for *_, cause in folder.rows()} <= END_CAUSES
        with server.client(keys["acme"].own) as client:
            client.post("/sandboxes", json={}).raise_for_status()  # which sweeps what others have left
        assert [group for pid in victims for group in cgroups_of(pid) if group not in older] == []
        assert [mount for mount in mounts() if mount not in mounted] == []
        assert max(effects.seen.values(), default=1) == 1
