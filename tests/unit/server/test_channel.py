"""The channel: a sandbox at a server, through connections that break and with clients that lie."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hosting import Hosted, hosted

from fumehood import DeniedError, Finished, FumehoodError, LostError, Policy, Stdout, UsageError
from fumehood.audit import Query
from fumehood.audit.inspection import check
from fumehood.remote import calls
from fumehood.remote.sandbox import RemoteSandbox
from fumehood.remote.server import Server, connect
from fumehood.results import Cause
from fumehood.server.identity.keys import create_key, list_keys, revoke_key
from fumehood.server.identity.principals import OF_TENANTS, Scope
from fumehood.server.lifetime import look_after
from fumehood.server.tenants.quotas import Quota, QuotaExceededError, set_limit
from fumehood.server.tenants.tenants import create_tenant

pytestmark = pytest.mark.anyio

_OPEN = Policy(filesystem={"outputs": ["out/**"]})


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Hosted]:
    async with hosted(tmp_path / "state", strict=False, sandboxes={"linger": "5s"}) as running:
        for tenant in ("acme", "umbrella"):
            await create_tenant(running.server.database, tenant, "test")
        yield running


async def key_of(host: Hosted, tenant: str = "acme", scopes: frozenset[Scope] = frozenset(OF_TENANTS)) -> str:
    return (await create_key(host.server.database, tenant, "test", scopes))[0]


@pytest.fixture
async def server(host: Hosted) -> Server:
    return connect(host.address, await key_of(host))


class Wire:
    """A connection to the server that can be cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self.is_down = False

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        if self.is_down:
            writer.transport.abort()
            return
        theirs, ours = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(ours)
        with suppress(OSError):
            await asyncio.gather(_copy(reader, ours), _copy(theirs, writer))

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def wired(host: Hosted) -> AsyncIterator[tuple[Wire, Server]]:
    wire = Wire(int(host.address.rpartition(":")[2]))
    proxy = await asyncio.start_server(wire.carry, "127.0.0.1", 0)
    try:
        port = proxy.sockets[0].getsockname()[1]
        yield wire, connect(f"http://127.0.0.1:{port}", await key_of(host))
    finally:
        proxy.close()
        wire.cut()


async def test_a_run_goes_on_over_a_connection_that_was_cut(host: Hosted) -> None:
    async with wired(host) as (wire, server), server.sandbox(_OPEN) as box:
        run = asyncio.ensure_future(box.run("for n in range(3): print(input())", stdin="a\nb\nc\n"))
        seen: list[bytes] = []
        async for event in box.stream("for n in range(300): print(n)"):
            if isinstance(event, Stdout):
                seen.append(event.data)
                if len(seen) in (1, 3):
                    wire.cut()
        assert b"".join(seen).split() == [b"%d" % n for n in range(300)]
        assert (await run).stdout == "a\nb\nc\n"


async def test_a_client_that_does_not_come_back_loses_its_sandbox_and_knows_it(host: Hosted) -> None:
    async with wired(host) as (wire, server):
        with pytest.raises(LostError):
            async with server.sandbox(_OPEN, idle="1h") as box:
                waiting = asyncio.ensure_future(box.run("import time; time.sleep(20)"))
                await box.run("pass")
                opened = await host.server.registry.find("acme", box.id)
                wire.is_down = True
                wire.cut()
                await opened.close("abandoned")
                result = await waiting
                assert (result.cause, result.ok) == (Cause.LOST, False)
                assert "not done again" in result.detail
                await box.run("pass")
        record = await host.server.registry.records_of("acme", box_id(opened))
        assert record == "abandoned"


def box_id(opened: Any) -> str:
    return str(opened.id)
