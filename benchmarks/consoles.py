"""The console of a server: how much a page weighs, when a record is on open pages, and what open pages cost."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from benchmarks.hood_server import BenchServer, serving
from fumehood.audit.inspection import open_store
from fumehood.audit.store import Query
from fumehood.cli.bench.measurement import Row

_PAGES = 200
_SECONDS = 10
_RUNS = 10


async def measure() -> AsyncIterator[Row]:
    with tempfile.TemporaryDirectory(prefix="hood-bench-", dir="/var/tmp") as disk:
        async with serving(Path(disk, "state")) as server:
            async for row in _rows(server, Path(disk, "state")):
                yield row


async def _rows(server: BenchServer, state: Path) -> AsyncIterator[Row]:
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        sandbox = await _sandbox(client, server.key)
        await _run(client, server.key, sandbox)
        answer = await client.post("/console/sign-in", data={"key": server.key}, headers={"Origin": server.url})
        cookie = answer.headers["set-cookie"].partition(";")[0]
        first, heaviest = await _weights(client, cookie)
        yield Row("the first page of the console, compressed", first, "KiB", budget="<= 60 KiB")
        yield Row("the heaviest page of the console, compressed", heaviest, "KiB", budget="<= 60 KiB")
        last = 0
        pages = [_OpenPage(server.url, cookie) for _ in range(_PAGES)]
        try:
            for page in pages:
                await page.open()
            last = max(_moments(state))
            idle = await _cost(server.process, asyncio.sleep(_SECONDS))
            yield Row(f"{_PAGES} open pages, nothing happens", idle, "% of a core", budget="<= 5 %")
            busy = await _cost(server.process, _runs(client, server.key, sandbox))
            for page in pages:
                await page.close()
            alone = await _cost(server.process, _runs(client, server.key, sandbox))
            yield Row(f"{_PAGES} open pages and a run a second / no page", busy, "% of a core", against=alone)
        finally:
            for page in pages:
                await page.close()
        moments = _moments(state)
        found = [seen - moments[seq] for seq, seen in pages[0].seen.items() if seq > last]
        yield Row("from a record to the page", statistics.median(found) * 1000, budget="<= 100 ms")


async def _weights(client: httpx.AsyncClient, cookie: str) -> tuple[float, float]:
    """Of the first page, and of the heaviest of those that it leads to."""
    start = (await client.get("/console/", headers={"Cookie": cookie})).text
    paths = dict.fromkeys(re.findall(r'href="(/console/[a-z][^"?#]*)"', start))
    weights = [await _weight(client, cookie, path) for path in ("/console/", *paths)]
    return weights[0], max(weights)


async def _weight(client: httpx.AsyncClient, cookie: str, path: str) -> float:
    page = (await client.get(path, headers={"Cookie": cookie})).text
    assets = re.findall(r'(?:href|src)="(/console/static/[^"]+)"', page)
    parts = [page, *[(await client.get(path)).text for path in assets]]
    return sum(len(gzip.compress(part.encode())) for part in parts) / 1024


async def _sandbox(client: httpx.AsyncClient, key: str) -> str:
    headers = {"Authorization": f"Bearer {key}"}
    return (await client.post("/v1/sandboxes", json={}, headers=headers)).json()["id"]


async def _run(client: httpx.AsyncClient, key: str, sandbox: str) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    answer = await client.post(f"/v1/sandboxes/{sandbox}/runs", json={"argv": ["true"]}, headers=headers)
    answer.raise_for_status()


async def _runs(client: httpx.AsyncClient, key: str, sandbox: str) -> None:
    for _ in range(_RUNS):
        began = time.monotonic()
        await _run(client, key, sandbox)
        await asyncio.sleep(max(0.0, began + 1 - time.monotonic()))


async def _cost(process: int, work: Awaitable[None]) -> float:
    """What share of a core the server takes meanwhile."""
    began, before = time.monotonic(), _cpu_seconds(process)
    await work
    return 100 * (_cpu_seconds(process) - before) / (time.monotonic() - began)


def _cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _moments(state: Path) -> dict[int, float]:
    """When each record was written, of the tenant that has most."""
    logs = [open_store(folder) for folder in state.glob("tenants/*/audit")]
    records = max((list(log.find(Query())) for log in logs), key=len)
    return {record.seq: datetime.fromisoformat(record.time).timestamp() for record in records}


class _OpenPage:
    """A page whose news are read, as a browser does."""

    def __init__(self, url: str, cookie: str) -> None:
        self._place, self._cookie = urlsplit(url), cookie
        self.seen: dict[int, float] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        reader, self._writer = await asyncio.open_connection(self._place.hostname, self._place.port)
        head = f"Host: {self._place.netloc}\r\nCookie: {self._cookie}\r\n\r\n"
        head = f"GET /console/news?view=now&after=0 HTTP/1.1\r\n{head}"
        self._writer.write(head.encode())
        await reader.readuntil(b"\r\n\r\n")
        self._task = asyncio.ensure_future(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while data := await reader.read(65536):
                moment = time.time()
                for number in re.findall(rb"id: (\d+)\n", data):
                    self.seen.setdefault(int(number), moment)

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._writer = self._task = None
