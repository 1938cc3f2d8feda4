"""All sandboxes that this server process has open, of all tenants."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from fumehood.audit.trail import Trail
from fumehood.errors import QuotaError
from fumehood.policy import Policy
from fumehood.sandbox.async_sandbox import AsyncSandbox, open_named
from fumehood.sandbox.snapshots import PolicyUse
from fumehood.server.identity.principals import Principal
from fumehood.server.identity.request_quota import RequestQuota
from fumehood.server.sandboxes import records
from fumehood.server.sandboxes.errors import DrainingError, ElsewhereError, EndedError, NoSuchSandboxError
from fumehood.server.sandboxes.forks import PreparedForks
from fumehood.server.sandboxes.open_sandbox import OpenSandbox
from fumehood.server.sandboxes.opening import Opening
from fumehood.server.sandboxes.policy_change import changed_policy
from fumehood.server.sandboxes.records import SandboxRecord
from fumehood.server.sandboxes.tenancy import Tenancy
from fumehood.server.storage.database import Database
from fumehood.server.tracing import OFF, Tracing
from fumehood.tenant import Tenant


class SandboxRegistry:
    def __init__(
        self,
        database: Database,
        instance: str,
        tenancy: Tenancy,
        requests: RequestQuota,
        *,
        strict: bool = True,
        tracing: Tracing = OFF,
    ) -> None:
        """With `strict`, sandboxes whose limits this host enforces only in part are refused, whatever policies say."""
        self._database, self.instance, self._tracing = database, instance, tracing
        self._tenancy, self._requests, self._strict = tenancy, requests, strict
        self._open: dict[tuple[str, str], OpenSandbox] = {}
        self.forks = PreparedForks()
        self._is_draining = False
        self._one_less = asyncio.Event()

    async def open(self, principal: Principal, opening: Opening, trail: Trail) -> tuple[OpenSandbox, str]:
        """An open sandbox, and the token for those who come back to it."""
        policy = self._as_strict(opening.policy)
        tenant = await self._tenancy.of(principal.tenant, policy)
        tenant.check(policy)
        return await self._open_box(principal, opening, lambda: make_box(opening, policy, tenant, trail))

    async def open_fork(self, principal: Principal, name: str) -> tuple[OpenSandbox, str]:
        """A copy of a sandbox that this principal has asked for."""
        fork = self.forks.take(principal, name)
        try:
            return await self._open_box(principal, fork.opening, lambda: fork.box)
        except QuotaError:
            self.forks.put_back(name, fork)  # there may be room for it later
            raise
        except BaseException:
            fork.box.release()
            raise

    async def _open_box(
        self, principal: Principal, opening: Opening, make: Callable[[], AsyncSandbox]
    ) -> tuple[OpenSandbox, str]:
        if self._is_draining:
            raise DrainingError
        identifier, token = f"sbx_{secrets.token_hex(10)}", secrets.token_urlsafe(32)
        record = _record(identifier, principal, opening)
        await records.admit(self._database, principal.tenant, self.instance, record, token)
        try:
            opened = OpenSandbox(identifier, principal, token, make(), opening, self)
            with self._tracing.step("open sandbox", tenant=principal.tenant, sandbox=identifier):
                await opened.open()
        except BaseException:
            await asyncio.shield(records.end(self._database, principal.tenant, identifier, "failed"))
            raise
        self._open[principal.tenant, identifier] = opened
        return opened, token

    # What an open sandbox asks of it.

    async def admit_call(self, principal: Principal) -> None:
        """Counts a call of the channel as a request of the tenant."""
        await self._requests.wait(principal.tenant)

    async def fork(self, opened: OpenSandbox, count: int) -> list[str]:
        self.forks.check_room(opened.tenant, count)
        boxes = await opened.box.fork(count)
        return self.forks.keep(boxes, opened.opening, opened.principal)

    async def change_policy(self, opened: OpenSandbox, wanted: object) -> None:
        policy = await changed_policy(self._database, opened.principal, opened.box.policy, wanted)
        await opened.box.change_policy(self._as_strict(policy))

    async def forget(self, opened: OpenSandbox, cause: str) -> None:
        self._open.pop((opened.tenant, opened.id), None)
        self._one_less.set()
        await records.end(self._database, opened.tenant, opened.id, cause)

    def _as_strict(self, policy: Policy) -> Policy:
        return policy.override({"strict": True}) if self._strict else policy

    async def find(self, tenant: str, identifier: str) -> OpenSandbox:
        if found := self._open.get((tenant, identifier)):
            return found
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
        self.forks.release_all()

    async def _wait_until_empty(self) -> None:
        while self._open:
            self._one_less.clear()
            await self._one_less.wait()


def make_box(opening: Opening, policy: Policy, tenant: Tenant, trail: Trail) -> AsyncSandbox:
    """Not open yet."""
    make = partial(
        AsyncSandbox,
        session=opening.session,
        keep_tmp=opening.keep_tmp,
        learn=opening.learn,
        gated=opening.gated,
        progress=opening.progress,
        audit=trail,
        tenant=tenant,
    )
    named = opening.named
    if named is None:
        return make(policy, snapshot=opening.snapshot)
    is_own = named.policy is PolicyUse.OWN and policy.digest == opening.policy.digest
    # A policy that this server makes stricter than it was kept is for this use alone.
    once = named.policy is not PolicyUse.FROM_NOW_ON
    given = None if is_own else policy
    return open_named(make, tenant, named.name, given, create=named.create, wait=named.wait, once=once)


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
