"""Floods of connections, requests and messages: the clients of another tenant go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import sampling
from e2b import AsyncSandbox as E2bSandbox
from live.server_process import ServerFolder, ServerProcess, TenantKeys
from live.traces import private_kib

import fumehood
from benchmarks.floods import FLOODS, OF_CHANNELS, OF_PROGRAMS, Victim, flooding

ROUNDS = sampling.amount(2, whole=10)
MOST_CONNECTIONS = 2048
# Bodies of one tenant's requests may have 256 MiB together.
ALLOWED_GROWTH_KIB = 320 * 1024
MOST_LOG_BYTES = 64 * 1024
POLICY = "version: 1\nfilesystem: {outputs: ['**']}\n"


@dataclass(frozen=True)
class Scene:
    server: ServerProcess
    hostile: TenantKeys
    other: TenantKeys
    log: Path


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = ServerFolder.at(tmp_path_factory.mktemp("floods") / "state")
    hostile = folder.add_tenant(
        "hostile", {"base": POLICY}, sandboxes=5, openings_per_minute=20, requests_per_second=50
    )
    other = folder.add_tenant("other", {"base": POLICY})
    with folder.served(from_nothing=True) as server:
        yield Scene(server, hostile, other, folder.log)


async def work(scene: Scene) -> None:
    """All three protocols, each with a new connection; any failure is an error."""
    server, keys = scene.server, scene.other
    headers = {"Authorization": f"Bearer {keys.own}"}
    async with httpx.AsyncClient(base_url=f"{server.url}/v1", headers=headers, timeout=60, verify=False) as client:
        opened = (await client.post("/sandboxes", json={"policy": "base"})).raise_for_status().json()
        run = await client.post(f"/sandboxes/{opened['id']}/runs", json={"code": "print(42)"})
        assert run.raise_for_status().json()["stdout"] == "42\n"
        (await client.delete(f"/sandboxes/{opened['id']}")).raise_for_status()
    async with fumehood.connect(server.url, keys.own) as hood, hood.sandbox("base") as box:
        assert (await box.run("print(42)")).stdout == "42\n"
    remote = await E2bSandbox.create("base", timeout=60, **server.e2b_options(keys.e2b))
    assert (await remote.commands.run("echo 42")).stdout == "42\n"
    await remote.kill()


@contextmanager
def flooded(scene: Scene, name: str, *, is_e2b: bool) -> Iterator[None]:
    url = scene.server.e2b_url if is_e2b else scene.server.url
    with flooding(name, Victim(url, scene.hostile.e2b if is_e2b else scene.hostile.own, is_e2b)):
        yield


PLACES = [
    (name, is_e2b)
    for name in FLOODS
    for is_e2b in (False, True)
    if not (is_e2b and name in (*OF_CHANNELS, *OF_PROGRAMS))
]


@pytest.mark.anyio
@pytest.mark.some_parameters
@pytest.mark.parametrize(
    ("name", "is_e2b"), PLACES, ids=[f"{name}-{'e2b' if is_e2b else 'http'}" for name, is_e2b in PLACES]
)
async def test_others_go_on_in_a_flood(scene: Scene, name: str, is_e2b: bool) -> None:
    before = private_kib(scene.server.pid)
    with flooded(scene, name, is_e2b=is_e2b):
        for _ in range(ROUNDS):
            await work(scene)
        assert private_kib(scene.server.pid) - before < ALLOWED_GROWTH_KIB
    await work(scene)
    assert scene.log.stat().st_size < MOST_LOG_BYTES


@pytest.mark.anyio
async def test_ten_thousand_idle_connections_do_not_keep_others_out(scene: Scene) -> None:
    count = sampling.amount(MOST_CONNECTIONS + 500, whole=10_000)
    with flooding("idle connections", Victim(scene.server.url, "none"), count):
        await work(scene)
        assert len(list(Path(f"/proc/{scene.server.pid}/fd").iterdir())) < MOST_CONNECTIONS + 500
