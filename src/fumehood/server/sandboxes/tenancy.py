"""What a tenant's sandboxes are given by the server: folders, secrets, an engine, limits."""

from __future__ import annotations

from functools import cache

import anyio.to_thread

from fumehood.backends.native.cgroups import find_hierarchies
from fumehood.host.folders import remove_folder
from fumehood.policy import Docker, Policy
from fumehood.policy.secret import GivenSecrets
from fumehood.server.chains import AuditChains
from fumehood.server.settings import ServerSettings
from fumehood.server.storage.database import Database
from fumehood.server.tenants.disk import TenantDiskLimits
from fumehood.server.tenants.meter import Meters
from fumehood.server.tenants.quotas import Limits, Quota, read_limits
from fumehood.server.tenants.secrets import SealingKey, read_secrets
from fumehood.server.tracing import Tracing
from fumehood.snapshots import SnapshotStore
from fumehood.tenant import Tenant

_CONTAINERS = ("docker", "gvisor")
_STORE = "sandboxes"


class Tenancy:
    def __init__(
        self,
        settings: ServerSettings,
        database: Database,
        instance: str,
        chains: AuditChains,
        sealing: SealingKey,
        tracing: Tracing,
    ) -> None:
        self._settings, self._database = settings, database
        self._chains, self._sealing = chains, sealing
        self.meters = Meters(database, instance, tracing)

    async def of(self, tenant: str, policy: Policy) -> Tenant:
        """As it is now, for a sandbox with this policy: secrets and limits may have changed since its last one."""
        meter = await self.meters.of(tenant)
        limits = meter.limits
        engine = self._settings.engines.get(tenant)
        return Tenant(
            tenant,
            self._chains.folder_of(tenant),
            GivenSecrets(await read_secrets(self._database, self._sealing, tenant)),
            docker=None if engine is None else Docker(host=engine),
            private_networks=tenant in self._settings.private_networks,
            memory_bytes=int(limits[Quota.MEMORY].value) if self._limits_memory(policy) else None,
            meter=meter,
            egress=meter.egress,
            disk=self._disk(limits),
        )

    async def store_of(self, tenant: str) -> SnapshotStore:
        """Its named sandboxes and snapshots, with the limits that it has now."""
        limits = await self._database.transact(tenant, lambda each: read_limits(each, tenant))
        return SnapshotStore(self._chains.folder_of(tenant) / _STORE, self._disk(limits))

    async def remove_store(self, tenant: str) -> None:
        await anyio.to_thread.run_sync(remove_folder, self._chains.folder_of(tenant) / _STORE)

    def _disk(self, limits: Limits) -> TenantDiskLimits:
        return TenantDiskLimits(limits, self._settings.sandboxes.kept_days)

    def _limits_memory(self, policy: Policy) -> bool:
        """Containers are the engine's, which has the tenant's memory. Without a cgroup, a server that is not strict has
        the limit of each run alone.
        """
        if policy.backend in _CONTAINERS:
            return False
        return self._settings.strict or has_cgroup_for("memory")


@cache
def has_cgroup_for(controller: str) -> bool:
    return any(controller in hierarchy.controllers for hierarchy in find_hierarchies())
