"""All sandboxes that this server process has open, of all tenants."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial

from fumehood.audit.trail import Trail
from fumehood.errors import QuotaError, UsageError
from fumehood.policy import Policy
from fumehood.remote.memory import MemoryAccount
from fumehood.server.identity.principals import Principal
from fumehood.server.identity.request_quota import RequestQuota
from fumehood.server.sandboxes import records
from fumehood.server.sandboxes.errors import DrainingError, ElsewhereError, EndedError, NoSuchSandboxError
from fumehood.server.sandboxes.forks import PreparedForks
from fumehood.server.sandboxes.lost_records import SERVED_AS
from fumehood.server.sandboxes.open_sandbox import OpenSandbox
from fumehood.server.sandboxes.opening import Opening
from fumehood.server.sandboxes.placement import Loss, PlacedSandbox, Placement, PlacementRequest
from fumehood.server.sandboxes.policy_change import changed_policy
from fumehood.server.sandboxes.records import SandboxRecord
from fumehood.server.sandboxes.sent_mounts import SentMounts, mounted_from
from fumehood.server.sandboxes.tenancy import Tenancy
from fumehood.server.storage.database import Database, StorageError
from fumehood.server.tenants.meter import DatabaseAwayError
from fumehood.server.tracing import OFF, Tracing


class SandboxRegistry:
    def __init__(
        self,
        database: Database,
        instance: str,
        tenancy: Tenancy,
        placement: Placement,
        requests: RequestQuota,
        memory_of: Callable[[str], MemoryAccount],
        mounts: SentMounts,
        *,
        strict: bool = True,
        tracing: Tracing = OFF,
    ) -> None:
        """With `strict`, sandboxes whose limits their host enforces only in part are refused, whatever policies say.

        `memory_of` gives the account of a tenant, in which all its channels count what they hold.
        """
        self.memory_of, self.mounts = memory_of, mounts
        self._database, self.instance, self._placement = database, instance, placement
        self._tenancy, self._requests = tenancy, requests
        self._strict, self._tracing = strict, tracing
        self._open: dict[tuple[str, str], OpenSandbox] = {}
        self.forks = PreparedForks()
        self._endings: set[asyncio.Task[None]] = set()
        self._lost_early: set[str] = set()
        """Those whose host was lost in the moment after it had opened them."""
        self._unwritten: dict[tuple[str, str], str] = {}
        """Ends that the database did not take so far: tenant and id -> cause."""
        self._is_draining = False
        self._one_less = asyncio.Event()

    async def open(self, principal: Principal, opening: Opening, trail: Trail) -> tuple[OpenSandbox, str]:
        """An open sandbox, and the token for those who come back to it."""
        policy = self._as_strict(opening.policy)
        tenant = await self._tenancy.of(principal.tenant, policy)
        if opening.mounts:
            sent = self.mounts.take(principal, opening.mounts)
            policy = mounted_from(policy, {target: mount.source for target, mount in sent.items()})
            tenant = replace(tenant, mounts=frozenset(mount.source for mount in sent.values()))
        tenant.check(policy)

        def place(identifier: str, lost: Loss) -> PlacedSandbox:
            served = trail.within(**{SERVED_AS: identifier})
            memory = self.memory_of(principal.tenant)
            request = PlacementRequest(identifier, principal.name, opening, policy, tenant, served, lost, memory)
            return self._placement.place(request)

        try:
            return await self._open_box(principal, opening, place)
        except BaseException:
            await asyncio.shield(self.mounts.release(opening.mounts.values()))
            raise

    async def open_fork(self, principal: Principal, name: str, trail: Trail) -> tuple[OpenSandbox, str]:
        """A copy of a sandbox that this principal has asked for."""
        fork = self.forks.take(principal, name)

        def copy(identifier: str, lost: Loss) -> PlacedSandbox:
            return fork.copy.place(identifier, trail.within(**{SERVED_AS: identifier}), lost)

        try:
            return await self._open_box(principal, fork.opening, copy)
        except QuotaError:
            self.forks.put_back(name, fork)  # there may be room for it later
            raise
        except BaseException:
            fork.copy.release()
            raise

    async def _open_box(
        self, principal: Principal, opening: Opening, make: Callable[[str, Loss], PlacedSandbox]
    ) -> tuple[OpenSandbox, str]:
        if self._is_draining:
            raise DrainingError
        identifier, token = f"sbx_{secrets.token_hex(10)}", secrets.token_urlsafe(32)
        record = _record(identifier, principal, opening)
        try:
            await records.admit(self._database, principal.tenant, self.instance, record, token)
        except asyncio.CancelledError:
            await asyncio.shield(self._end(principal.tenant, identifier, "failed"))  # it may be there all the same
            raise
        lost = partial(self._lose, principal.tenant, identifier)
        try:
            opened = OpenSandbox(identifier, principal, token, make(identifier, lost), opening, self)
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

    # What an open sandbox asks of it.

    async def admit_call(self, principal: Principal) -> None:
        """Counts a call of the channel as a request of the tenant."""
        try:
            await self._requests.wait(principal.tenant)
        except StorageError as error:
            raise DatabaseAwayError from error

    async def fork(self, opened: OpenSandbox, count: int) -> list[str]:
        if opened.opening.mounts:
            raise UsageError("a sandbox with mounts cannot be forked: their files are here for this one; upload them")
        with self.forks.room_for(opened.tenant, count):
            copies = await self._placement.fork(opened.box, count)
            return self.forks.keep(copies, opened.opening, opened.principal)

    async def change_policy(self, opened: OpenSandbox, wanted: object) -> None:
        policy = await changed_policy(self._database, opened.principal, opened.box.policy, wanted)
        await opened.box.change_policy(self._as_strict(policy))

    async def forget(self, opened: OpenSandbox, cause: str) -> None:
        self._open.pop((opened.tenant, opened.id), None)
        self._one_less.set()
        await self.mounts.release(opened.opening.mounts.values())
        await self._end(opened.tenant, opened.id, cause)

    def _as_strict(self, policy: Policy) -> Policy:
        return policy.as_strict if self._strict else policy

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
        """Sandboxes that were opened with keys that do not hold any more; to others those keys lose access."""
        for opened in self._open.values():
            opened.tokens.withdraw(principals)
        theirs = [opened for opened in self._open.values() if opened.principal.name in principals]
        await asyncio.gather(*(opened.close(cause) for opened in theirs))

    @property
    def is_empty(self) -> bool:
        """Whether no sandbox is open."""
        return not self._open

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

    def _lose(self, tenant: str, identifier: str, _: str) -> None:
        """The host that has it is lost. Calls under way end by themselves, each with what is known, before it does."""
        opened = self._open.get((tenant, identifier))
        if opened is None:
            self._lost_early.add(identifier)
            return
        task = asyncio.ensure_future(opened.end_lost())
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    async def _end(self, tenant: str, identifier: str, cause: str) -> None:
        """A sandbox ends whether or not the database is there, which otherwise gets to know of it by `write_ends`."""
        self._unwritten[tenant, identifier] = cause
        with suppress(StorageError):
            await self._write_end(tenant, identifier, cause)

    async def write_ends(self) -> None:
        for (tenant, identifier), cause in list(self._unwritten.items()):
            await self._write_end(tenant, identifier, cause)

    async def _write_end(self, tenant: str, identifier: str, cause: str) -> None:
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
