"""A server in the test's own event loop, at a port of the loopback, with a tenant or two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from fumehood.server.identity.keys import create_key
from fumehood.server.identity.principals import OF_TENANTS, Scope
from fumehood.server.lifetime import ServerState
from fumehood.server.listener import ServerListener
from fumehood.server.settings import ServerSettings
from fumehood.server.tenants.tenants import create_tenant


class Hosted:
    def __init__(self, server: ServerState, address: str, listener: ServerListener) -> None:
        self.server, self.address, self.listener = server, address, listener
        self.clients: list[httpx.AsyncClient] = []

    def client(self, key: str | None, **headers: str) -> httpx.AsyncClient:
        own = {"Authorization": f"Bearer {key}", **headers} if key is not None else headers
        # It speaks plain HTTP: to load the authorities of the host would take longer than most requests.
        client = httpx.AsyncClient(base_url=f"{self.address}/v1", headers=own, timeout=60, verify=False)
        self.clients.append(client)
        return client

    async def tenant(self, name: str) -> httpx.AsyncClient:
        """A new tenant, and a client with every scope of one."""
        await create_tenant(self.server.database, name, "test")
        return await self.key(name, OF_TENANTS)

    async def key(self, tenant: str, scopes: Iterable[Scope]) -> httpx.AsyncClient:
        key, _ = await create_key(self.server.database, tenant, "test", scopes)
        return self.client(key)


@asynccontextmanager
async def hosted(state: Path, **settings: object) -> AsyncIterator[Hosted]:
    begun: asyncio.Future[tuple[str, ServerState]] = asyncio.get_running_loop().create_future()
    given = ServerSettings.model_validate({"listen": "127.0.0.1:0", "state": str(state), **settings})
    listener = ServerListener(given, lambda address, server: begun.set_result((address, server)))
    running = asyncio.ensure_future(listener.run())
    await asyncio.wait([begun, running], return_when=asyncio.FIRST_COMPLETED)
    if not begun.done():
        await running
    address, server = begun.result()
    host = Hosted(server, address, listener)
    try:
        yield host
    finally:
        for client in host.clients:
            await client.aclose()
        listener.stop()
        listener.stop()
        await running
