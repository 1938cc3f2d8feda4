"""All sandboxes that this server process has open, of all tenants."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from fumehood.audit.trail import Trail
from fumehood.frozen import frozen
from fumehood.policy import Policy
from fumehood.sandbox.async_sandbox import AsyncSandbox
from fumehood.server.identity.principals import Principal
from fumehood.server.sandboxes import records
from fumehood.server.sandboxes.errors import DrainingError, ElsewhereError, EndedError, NoSuchSandboxError
from fumehood.server.sandboxes.lost_records import SERVED_AS
from fumehood.server.sandboxes.open_sandbox import OpenSandbox, Times
from fumehood.server.sandboxes.records import SandboxRecord
from fumehood.server.sandboxes.tenancy import Tenancy
from fumehood.server.storage.database import Database, StorageError
from fumehood.server.tracing import OFF, Tracing


@frozen
class Opening:
    policy_name: str
    policy: Policy
    times: Times
    metadata: Mapping[str, str]
    session: bool = False
    keep_tmp: bool = False
    learn: bool = False
    snapshot: str | None = None
    progress: Callable[[str], None] | None = None


class SandboxRegistry:
    def __init__(
        self, database: Database, instance: str, tenancy: Tenancy, *, strict: bool = True, tracing: Tracing = OFF
    ) -> None:
        """With `strict`, sandboxes whose limits this host enforces only in part are refused, whatever policies say."""
        self._database, self.instance = database, instance
        self._tenancy, self._strict, self._tracing = tenancy, strict, tracing
        self._open: dict[tuple[str, str], OpenSandbox] = {}
        self._unwritten: dict[tuple[str, str], str] = {}
        """Ends that the database did not take so far: tenant and id -> cause."""
        self._is_draining = False
        self._one_less = asyncio.Event()

    async def open(self, principal: Principal, opening: Opening, trail: Trail) -> tuple[OpenSandbox, str]:
        """An open sandbox, and the token for those who come back to it."""
        if self._is_draining:
            raise DrainingError
        policy = opening.policy.override({"strict": True}) if self._strict else opening.policy
        tenant = await self._tenancy.of(principal.tenant, policy)
        tenant.check(policy)
        identifier, token = f"sbx_{secrets.token_hex(10)}", secrets.token_urlsafe(32)
        record = _record(identifier, principal, opening)
        await records.admit(self._database, principal.tenant, self.instance, record, token)
        box = AsyncSandbox(
            policy,
            session=opening.session,
            keep_tmp=opening.keep_tmp,
            learn=opening.learn,
            snapshot=opening.snapshot,
            progress=opening.progress,
            audit=trail.within(**{SERVED_AS: identifier}),
            tenant=tenant,
        )
        opened = OpenSandbox(identifier, principal, token, box, opening.times, self._forget)
        try:
            with self._tracing.step("open sandbox", tenant=principal.tenant, sandbox=identifier):
                await opened.open()
        except BaseException:
            await asyncio.shield(self._end(principal.tenant, identifier, "failed"))
            raise
        self._open[principal.tenant, identifier] = opened
        return opened, token

    async def find(self, tenant: str, identifier: str) -> OpenSandbox:
        if found := self._open.get((tenant, identifier)):
            return found
        if (tenant, identifier) in self._unwritten:
            await self.write_ends()
        record = await records.find(self._database, tenant, identifier)
        if record is None:
            raise NoSuchSandboxError
        if record.ended is None:
            raise ElsewhereError
        raise EndedError(record)

    async def close(self, tenant: str, identifier: str) -> None:
        """Works in every state; one that has ended stays as it ended."""
        try:
            opened = await self.find(tenant, identifier)
        except EndedError:
            return
        await opened.close("closed")

    async def close_all_of(self, principals: Collection[str], cause: str) -> None:
        """Sandboxes that were opened with keys that do not hold any more."""
        theirs = [opened for opened in self._open.values() if opened.principal.name in principals]
        await asyncio.gather(*(opened.close(cause) for opened in theirs))

    async def drain(self, seconds: float) -> None:
        """No more openings; what is open may go on for so long."""
        self._is_draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wait_until_empty()
        await asyncio.gather(*(opened.close("drained") for opened in list(self._open.values())))

    async def _wait_until_empty(self) -> None:
        while self._open:
            self._one_less.clear()
            await self._one_less.wait()

    async def _forget(self, opened: OpenSandbox, cause: str) -> None:
        self._open.pop((opened.tenant, opened.id), None)
        self._one_less.set()
        await self._end(opened.tenant, opened.id, cause)

    async def _end(self, tenant: str, identifier: str, cause: str) -> None:
        """A sandbox ends whether or not the database is there, which otherwise gets to know of it by `write_ends`."""
        self._unwritten[tenant, identifier] = cause
        with suppress(StorageError):
            await self.write_ends()

    async def write_ends(self) -> None:
        for (tenant, identifier), cause in list(self._unwritten.items()):
            await records.end(self._database, tenant, identifier, cause)
            self._unwritten.pop((tenant, identifier), None)


def _record(identifier: str, principal: Principal, opening: Opening) -> SandboxRecord:
    now = time.time()
    return SandboxRecord(
        identifier,
        opening.policy_name,
        opening.policy.digest,
        principal.name,
        opening.metadata,
        now,
        now + opening.times.lifetime,
        None,
        None,
        opening.policy.resources.disk,
    )
