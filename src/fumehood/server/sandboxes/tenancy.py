"""What a tenant's sandboxes are given by the server: folders, secrets, an engine, limits."""

from __future__ import annotations

from fumehood.policy import Docker
from fumehood.policy.secret import GivenSecrets
from fumehood.server.chains import AuditChains
from fumehood.server.settings import ServerSettings
from fumehood.server.storage.database import Database
from fumehood.server.tenants.meter import Meters
from fumehood.server.tenants.quotas import Quota, read_limits
from fumehood.server.tenants.secrets import SealingKey, read_secrets
from fumehood.tenant import Tenant


class Tenancy:
    def __init__(self, settings: ServerSettings, database: Database, chains: AuditChains, sealing: SealingKey) -> None:
        self._settings, self._database = settings, database
        self._chains, self._sealing = chains, sealing
        self.meters = Meters(database)

    async def of(self, tenant: str) -> Tenant:
        """As it is now: secrets and limits may have changed since its last sandbox was opened."""
        async with self._database.transaction(tenant) as transaction:
            limits = await read_limits(transaction, tenant)
        engine = self._settings.engines.get(tenant)
        return Tenant(
            tenant,
            self._chains.folder_of(tenant),
            GivenSecrets(await read_secrets(self._database, self._sealing, tenant)),
            docker=None if engine is None else Docker(host=engine),
            private_networks=tenant in self._settings.private_networks,
            memory_bytes=int(limits[Quota.MEMORY].value),
            meter=await self.meters.of(tenant),
        )
