"""All sandboxes that this server process has open, of all tenants."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial

from fumehood.audit.trail import Trail
from fumehood.frozen import frozen
from fumehood.policy import Policy
from fumehood.server.identity.principals import Principal
from fumehood.server.sandboxes import records
from fumehood.server.sandboxes.errors import DrainingError, ElsewhereError, EndedError, NoSuchSandboxError
from fumehood.server.sandboxes.lost_records import SERVED_AS
from fumehood.server.sandboxes.open_sandbox import OpenSandbox, Times
from fumehood.server.sandboxes.placement import Placement, PlacementRequest
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
        self,
        database: Database,
        instance: str,
        tenancy: Tenancy,
        placement: Placement,
        *,
        strict: bool = True,
        tracing: Tracing = OFF,
    ) -> None:
        """With `strict`, sandboxes whose limits their host enforces only in part are refused, whatever policies say."""
        self._database, self.instance, self._placement = database, instance, placement
        self._tenancy, self._strict, self._tracing = tenancy, strict, tracing
        self._open: dict[tuple[str, str], OpenSandbox] = {}
        self._endings: set[asyncio.Task[None]] = set()
        self._lost_early: set[str] = set()
        """Those whose host was lost in the moment after it had opened them."""
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
        lost = partial(self._lose, principal.tenant, identifier)
        served = trail.within(**{SERVED_AS: identifier})
        request = PlacementRequest(identifier, principal.name, opening, policy, tenant, served, lost)
        try:
            box = self._placement.place(request)
            opened = OpenSandbox(identifier, principal, token, box, opening.times, self._forget)
            with self._tracing.step("open sandbox", tenant=principal.tenant, sandbox=identifier):
                await opened.open()
        except BaseException:
            self._lost_early.discard(identifier)
            await asyncio.shield(self._end(principal.tenant, identifier, "failed"))
            raise
        self._open[principal.tenant, identifier] = opened
        if identifier in self._lost_early:
            self._lost_early.discard(identifier)
            lost("")
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

    def _lose(self, tenant: str, identifier: str, _: str) -> None:
        """The host that has it is lost. Calls under way end by themselves, each with what is known, before it does."""
        opened = self._open.get((tenant, identifier))
        if opened is None:
            self._lost_early.add(identifier)
            return
        task = asyncio.ensure_future(opened.end_lost())
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

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
