"""Somebody who visits the console of a server without a browser."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from unit.server.hosting import Hosted


class Visit:
    """A browser's part, by hand."""

    def __init__(self, client: httpx.AsyncClient, key: str) -> None:
        self.client, self.key = client, key
        self.origin = str(client.base_url).rstrip("/").removesuffix("/console")

    async def sign_in(self) -> httpx.Response:
        answer = await self.client.post("/sign-in", data={"key": self.key}, headers={"Origin": self.origin})
        if cookie := answer.headers.get("set-cookie"):
            self.client.headers["Cookie"] = cookie.partition(";")[0]
        return answer

    async def get(self, path: str) -> httpx.Response:
        return await self.client.get(path)

    async def token(self) -> str:
        found = re.search(r'name="token" value="(\w+)"', (await self.get("/")).text)
        assert found is not None
        return found[1]

    async def post(self, path: str, **form: str) -> httpx.Response:
        data = {"token": await self.token(), **form}
        return await self.client.post(path, data=data, headers={"Origin": self.origin})


@asynccontextmanager
async def visit(host: Hosted, api: httpx.AsyncClient) -> AsyncIterator[Visit]:
    key = api.headers["authorization"].split()[1]
    async with httpx.AsyncClient(base_url=f"{host.address}/console", timeout=60) as client:
        yield Visit(client, key)


async def run(api: httpx.AsyncClient) -> str:
    sandbox = (await api.post("/sandboxes", json={})).json()["id"]
    return (await api.post(f"/sandboxes/{sandbox}/runs", json={"code": "print(1)"})).json()["run_id"]


async def ask(api: httpx.AsyncClient) -> dict[str, str]:
    asked = {"tool": "t", "arguments": {"code": "1"}, "policy": "closed", "code": "code"}
    return (await api.post("/approvals", json=asked)).json()
