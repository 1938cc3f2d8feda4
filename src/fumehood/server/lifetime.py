"""A running server: what all requests share, from its start to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from fumehood import __version__
from fumehood.frozen import frozen
from fumehood.sandbox.named import NamedSandboxes
from fumehood.server import events, instances
from fumehood.server.api.archives import ArchiveTransfers
from fumehood.server.api.background import BackgroundRuns
from fumehood.server.api.idempotency import forget_answers
from fumehood.server.api.metrics import Metrics
from fumehood.server.chains import AuditChains
from fumehood.server.connections import TenantConnections
from fumehood.server.console.sessions import forget_sessions
from fumehood.server.identity.authenticator import Authenticator
from fumehood.server.identity.keys import keys_out_of_force
from fumehood.server.identity.principals import Principal
from fumehood.server.identity.request_quota import RequestQuota
from fumehood.server.sandboxes.placement import LocalPlacement, Placement
from fumehood.server.sandboxes.records import forget_ended
from fumehood.server.sandboxes.registry import SandboxRegistry
from fumehood.server.sandboxes.sent_mounts import SentMounts
from fumehood.server.sandboxes.tenancy import Tenancy
from fumehood.server.settings import ServerSettings
from fumehood.server.shipping.shipping import AuditShipping
from fumehood.server.storage.choice import is_shared, open_database
from fumehood.server.storage.database import Database, StorageError
from fumehood.server.tenants.secrets import SealingKey
from fumehood.server.tenants.tenants import list_tenants
from fumehood.server.tracing import Tracing

if TYPE_CHECKING:
    from fumehood.server.fleet.fleet import Fleet

_SWEEP_BEATS = 6
_COLLECT_BEATS = 360
_COUNT_SECONDS = 2.0
_log = logging.getLogger(__name__)


@frozen
class ServerState:
    settings: ServerSettings
    database: Database
    authenticator: Authenticator
    registry: SandboxRegistry
    tenancy: Tenancy
    chains: AuditChains
    sealing: SealingKey
    requests: RequestQuota
    connections: TenantConnections
    background: BackgroundRuns
    archives: ArchiveTransfers
    metrics: Metrics
    shipping: AuditShipping
    tracing: Tracing
    drain: asyncio.Event
    """Set when the server is about to end."""
    before_end: list[Callable[[], None]]
    """Called when connections are about to be closed: answers that have no end of their own end then."""
    fleet: Fleet | None
    """The workers of its cluster; None for a server that has its sandboxes itself."""


@asynccontextmanager
async def open_server(
    settings: ServerSettings, fail: Callable[[str], None], *, ships: bool = True
) -> AsyncIterator[ServerState]:
    """`fail` is called when it must not go on: others hold it for dead, and its sandboxes for lost.

    Without `ships` no records are sent to the sinks of the settings: for a process that ends soon.
    """
    async with AsyncExitStack() as stack:
        chains = AuditChains(settings.folder)
        sealing = SealingKey.at(Path(settings.sealing_key or settings.folder / "sealing.key"))
        database = open_database(settings.database_url)
        stack.push_async_callback(database.close)
        await database.prepare()
        instance, locks = instances.new_instance(), instances.InstanceLocks(settings.folder)
        stack.enter_context(locks.held(instance))
        await instances.register_instance(database, instance)
        await chains.own().write(events.ServerStarted(instance, __version__))
        others = instances.LostServers(database, chains, locks, instance, is_shared=is_shared(settings.database_url))
        await others.settle()
        mounts = SentMounts(settings.folder, instance, settings.limits.mounts_of_tenant)
        await asyncio.to_thread(mounts.remove_left, locks.names())
        stack.push_async_callback(mounts.close)
        shipping = AuditShipping(settings.shipping if ships else {}, settings.folder)
        stack.push_async_callback(asyncio.to_thread, shipping.stop)
        shipping.start()
        tracing = Tracing.open(settings.traces)
        stack.push_async_callback(asyncio.to_thread, tracing.close)
        tenancy = Tenancy(settings, database, instance, chains, sealing, tracing)
        fleet = await _open_fleet(settings, tenancy, chains, stack)
        placement, requests = _placement(fleet, tenancy), RequestQuota(database)
        authenticator = Authenticator(database, settings.oidc)
        stack.push_async_callback(authenticator.close)
        connections = TenantConnections(settings.limits.connections_of_tenant, settings.limits.bodies_of_tenant)
        registry = SandboxRegistry(
            *(database, instance, tenancy, placement, requests, connections.memory_of, mounts),
            strict=settings.strict,
            tracing=tracing,
        )
        server = ServerState(
            settings=settings,
            database=database,
            authenticator=authenticator,
            registry=registry,
            tenancy=tenancy,
            chains=chains,
            sealing=sealing,
            requests=requests,
            connections=connections,
            background=BackgroundRuns(),
            archives=ArchiveTransfers(),
            metrics=Metrics(),
            shipping=shipping,
            tracing=tracing,
            drain=asyncio.Event(),
            before_end=[],
            fleet=fleet,
        )
        stack.push_async_callback(_end, server, instance)
        for work in (_keep_alive(server, instance, others, fail), _keep_counts(server)):
            stack.push_async_callback(_stop, asyncio.ensure_future(work))
        yield server


async def _open_fleet(
    settings: ServerSettings, tenancy: Tenancy, chains: AuditChains, stack: AsyncExitStack
) -> Fleet | None:
    if settings.cluster is None:
        return None
    from fumehood.server.fleet.fleet import Fleet
    from fumehood.server.fleet.worker_reports import WorkerReports

    fleet = Fleet(Path(settings.cluster), WorkerReports(tenancy.meters, chains))
    stack.push_async_callback(fleet.close)
    await fleet.start()
    return fleet


def _placement(fleet: Fleet | None, tenancy: Tenancy) -> Placement:
    if fleet is None:
        return LocalPlacement()
    from fumehood.server.fleet.placement import FleetPlacement

    return FleetPlacement(fleet, tenancy.meters)


async def _end(server: ServerState, instance: str) -> None:
    await server.registry.drain(0)
    try:
        await server.tenancy.meters.settle_all()
        await instances.end_instance(server.database, instance)
    except StorageError as error:
        _log.warning("the database does not know that this server has ended; the next one will find out: %s", error)
    await server.chains.own().write(events.ServerEnded(instance))


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _keep_alive(
    server: ServerState, instance: str, others: instances.LostServers, fail: Callable[[str], None]
) -> None:
    """A database that is away for a while is no reason to end: others look at the same one."""
    beats = 0
    while True:
        await asyncio.sleep(instances.BEAT_SECONDS)
        beats += 1
        try:
            if not await instances.beat(server.database, instance):
                fail("other servers hold this one for dead, because it was stopped for long; start it again")
                return
            await look_after(server)
            if beats % _SWEEP_BEATS == 0:
                await others.settle()
                await forget_ended(server.database)
                await forget_answers(server.database)
                await forget_sessions(server.database)
            if beats % _COLLECT_BEATS == 0:
                await collect_old(server)
        except StorageError as error:
            server.tenancy.meters.hold()
            _log.warning("the database cannot be reached: %s", error)


async def _keep_counts(server: ServerState) -> None:
    """What tenants use goes to the database often: other servers count it too, and one that dies has lost little."""
    while True:
        await asyncio.sleep(_COUNT_SECONDS)
        try:
            await server.tenancy.meters.settle_busy()
        except StorageError as error:
            server.tenancy.meters.hold()
            _log.debug("the database cannot be reached: %s", error)  # which the beat warns of


async def look_after(server: ServerState) -> None:
    """What is due every few seconds: ends and usage go to the database, and a key out of force has no sandbox open."""
    await server.registry.write_ends()
    await server.tenancy.meters.settle_all()
    await server.registry.close_all_of(await keys_out_of_force(server.database), "revoked")
    server.registry.forks.release_old()
    await server.registry.mounts.release_old()


async def collect_old(server: ServerState) -> None:
    """Named sandboxes and snapshots that were not used for long, of every tenant, and contents that nothing needs."""
    for tenant in await list_tenants(server.database):
        trail = server.chains.trail_of(Principal(tenant.name, "server", frozenset()))
        named = NamedSandboxes(trail, await server.tenancy.store_of(tenant.name))
        await anyio.to_thread.run_sync(named.collect)
