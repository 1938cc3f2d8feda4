"""A server of the tests' own: in a thread of the test process, with a tenant that may do everything."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from outside import SECRET_VARIABLE, TOKEN

from fumehood.audit import AuditLog
from fumehood.server.identity.keys import create_key
from fumehood.server.identity.principals import OF_TENANTS, Scope
from fumehood.server.lifetime import ServerState
from fumehood.server.listener import ServerListener
from fumehood.server.settings import ServerSettings
from fumehood.server.tenants.quotas import Quota, set_limit
from fumehood.server.tenants.secrets import put_secret
from fumehood.server.tenants.tenants import create_tenant

TENANT = "acme"
FOLDERS = "/var/tmp/hood-server-"
_PLENTY = 1e12


class RunningServer(NamedTuple):
    url: str
    key: str
    folder: Path
    workers: Callable[[], list[dict[str, object]]]
    """Of its cluster, as it knows them."""
    make_key: Callable[..., str]
    """Another key of the tenant."""

    @property
    def log(self) -> AuditLog:
        """The tenant's."""
        return AuditLog.at(self.folder / "tenants" / TENANT / "audit")

    @property
    def store(self) -> Path:
        """Of the tenant's snapshots and named sandboxes."""
        return self.folder / "tenants" / TENANT / "sandboxes"


@contextmanager
def running_server(**settings: object) -> Iterator[RunningServer]:
    ready: Future[RunningServer] = Future()
    with tempfile.TemporaryDirectory(prefix=os.path.basename(FOLDERS), dir=os.path.dirname(FOLDERS)) as folder:
        end = threading.Event()
        given = ServerSettings.model_validate({"listen": "127.0.0.1:0", "state": folder, **settings})
        thread = threading.Thread(target=lambda: asyncio.run(_serve(given, ready, end)), daemon=True)
        thread.start()
        try:
            yield ready.result(60)
        finally:
            end.set()
            thread.join(60)


async def _serve(settings: ServerSettings, ready: Future[RunningServer], end: threading.Event) -> None:
    begun: asyncio.Future[tuple[str, ServerState]] = asyncio.get_running_loop().create_future()
    listener = ServerListener(settings, lambda address, server: begun.set_result((address, server)))
    running = asyncio.ensure_future(listener.run())
    try:
        await asyncio.wait([begun, running], return_when=asyncio.FIRST_COMPLETED)
        if not begun.done():
            await running
        address, server = begun.result()
        fleet = server.fleet
        workers = fleet.describe if fleet else list[dict[str, object]]
        loop = asyncio.get_running_loop()

        def make_key(scopes: Iterable[Scope], tenant: str = TENANT) -> str:
            made = create_key(server.database, tenant, "tests", scopes)
            return asyncio.run_coroutine_threadsafe(made, loop).result(60)[0]

        ready.set_result(RunningServer(address, await _make_key(server), settings.folder, workers, make_key))
    except BaseException as error:
        ready.set_exception(error)
        raise
    await asyncio.get_running_loop().run_in_executor(None, end.wait)
    listener.stop()
    listener.stop()
    await running


async def _make_key(server: ServerState) -> str:
    await create_tenant(server.database, TENANT, "tests")
    server.chains.folder_of(TENANT)  # before a test looks into it
    for quota in Quota:
        await set_limit(server.database, TENANT, quota, _PLENTY, "tests")
    await put_secret(server.database, server.sealing, TENANT, SECRET_VARIABLE, TOKEN, "tests")
    key, _ = await create_key(server.database, TENANT, "tests", OF_TENANTS)
    return key
