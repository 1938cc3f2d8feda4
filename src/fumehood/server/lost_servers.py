"""Servers of the same database that are gone: what they had open is lost, and gets its end in the audit logs."""

from __future__ import annotations

import asyncio

from fumehood.server import events, instances
from fumehood.server.chains import AuditChains
from fumehood.server.instance_locks import InstanceLocks
from fumehood.server.sandboxes.lost_records import end_lost
from fumehood.server.sandboxes.records import list_lost
from fumehood.server.storage.database import Database


class LostServers:
    def __init__(
        self, database: Database, chains: AuditChains, locks: InstanceLocks, instance: str, *, is_shared: bool
    ) -> None:
        """`is_shared` if several servers can use the database at once."""
        self._database, self._chains, self._locks, self._instance = database, chains, locks, instance
        self._is_shared = is_shared
        self._ended: set[tuple[str, str]] = set()
        """Tenants and ids of lost sandboxes whose ends are in the logs."""

    async def settle(self) -> None:
        """Which server finds another dead does not matter: the one that has its records writes the ends."""
        released = await asyncio.to_thread(self._locks.take_released)
        buried = await instances.bury_dead(self._database, self._instance, alone=not self._is_shared, ended=released)
        for dead in buried:
            await self._chains.own().write(events.InstanceBuried(dead))
        lost = await list_lost(self._database)
        self._ended &= {(tenant, each) for tenant, opened in lost.items() for each in opened}
        for tenant, opened in lost.items():
            await self._end(tenant, {each: time for each, time in opened.items() if (tenant, each) not in self._ended})

    async def _end(self, tenant: str, opened: dict[str, float]) -> None:
        if opened and self._chains.has_log_of(tenant):
            await asyncio.to_thread(self._write_ends, tenant, opened)
        self._ended |= {(tenant, each) for each in opened}

    def _write_ends(self, tenant: str, opened: dict[str, float]) -> None:
        with self._locks.turn():  # two servers of one folder would each write an end
            end_lost(self._chains.log_of(tenant), opened)
