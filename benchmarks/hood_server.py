"""`hood serve` as a process, with two tenants: one to measure, and one that may be hostile and has quotas."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.floods import Victim
from fumehood.server.identity.keys import create_key, e2b_spelling
from fumehood.server.identity.principals import OF_TENANTS
from fumehood.server.storage.choice import open_database
from fumehood.server.tenants.catalogue import put_policy
from fumehood.server.tenants.quotas import Quota, set_limit
from fumehood.server.tenants.tenants import create_tenant

_LISTENING = re.compile(r"listening at (\S+), for E2B's SDKs at (\S+)")
_PLENTY = 1e14
_OF_HOSTILE = {Quota.SANDBOXES: 5.0, Quota.RUNS: 5.0, Quota.OPENINGS: 30.0, Quota.REQUESTS: 50.0}
POLICY = "version: 1\nfilesystem: {outputs: ['**']}\n"


@dataclass(frozen=True)
class BenchServer:
    process: int
    url: str
    e2b_url: str
    key: str
    hostile_key: str

    @property
    def hostile(self) -> Victim:
        return Victim(self.url, self.hostile_key)

    @property
    def e2b_variables(self) -> dict[str, str]:
        return {"E2B_API_KEY": e2b_spelling(self.key), "E2B_API_URL": self.e2b_url, "E2B_SANDBOX_URL": self.e2b_url}


@asynccontextmanager
async def serving(folder: Path, database: str | None = None) -> AsyncIterator[BenchServer]:
    url = database or f"sqlite:///{folder}/server.db"
    keys = await _prepare(url)
    config = _configured(folder, url)
    with _started([sys.executable, "-m", "fumehood", "serve", "--config", str(config)]) as (process, found):
        yield BenchServer(process, found[1], found[2], *keys)


def _configured(folder: Path, database: str) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    places = {"listen": "127.0.0.1:0", "e2b": "127.0.0.1:0", "state": str(folder), "database": database}
    config = folder / "server.json"
    config.write_text(json.dumps({**places, "strict": False}))
    return config


async def _prepare(url: str) -> tuple[str, str]:
    database = open_database(url)
    try:
        await database.prepare()
        keys: list[str] = []
        for tenant in ("bench", "hostile"):
            await create_tenant(database, tenant, "bench")
            await put_policy(database, tenant, "base", POLICY, "bench")
            for quota in Quota:
                limit = _OF_HOSTILE.get(quota, _PLENTY) if tenant == "hostile" else _PLENTY
                await set_limit(database, tenant, quota, limit, "bench")
            keys.append((await create_key(database, tenant, "bench", OF_TENANTS))[0])
    finally:
        await database.close()
    return keys[0], keys[1]


@contextmanager
def _started(command: list[str]) -> Iterator[tuple[int, re.Match[str]]]:
    variables = {name: value for name, value in os.environ.items() if name != "FUMEHOOD_SERVER"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=variables
    ) as process:
        assert process.stdout is not None
        try:
            said: list[str] = []
            for line in process.stdout:
                said.append(line)
                if found := _LISTENING.search(line):
                    yield process.pid, found
                    return
            raise RuntimeError(f"the server did not start: {''.join(said)}")
        finally:
            process.kill()
