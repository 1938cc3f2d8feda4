"""A tenant of a server, as the console shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fumehood.audit.inspection import check
from fumehood.audit.log import AuditLog
from fumehood.audit.trail import Trail
from fumehood.audit.verification import Report
from fumehood.server.console.news import NewsFeed
from fumehood.server.console.recorded_views import RecordedViews
from fumehood.server.console.source import Gauge, SandboxRow
from fumehood.server.console.threads import LogThreads
from fumehood.server.console.verification_state import Verification
from fumehood.server.events import RecordsRead
from fumehood.server.identity.approvers import check_other
from fumehood.server.identity.principals import Principal
from fumehood.server.sandboxes.records import list_open
from fumehood.server.tenants.catalogue import list_policies
from fumehood.server.tenants.quotas import Quota, count_open, read_limits
from fumehood.tools.approvals import ApprovalStore

if TYPE_CHECKING:
    from fumehood.server.lifetime import ServerState


class TenantSource:
    is_local = False

    def __init__(self, server: ServerState, tenant: str) -> None:
        self.server, self.title = server, tenant
        self.blocking = LogThreads(tenant)
        self.feed = NewsFeed(lambda: self.log, self.blocking)
        self.verification = Verification(self.verify, self.blocking)
        self.views = RecordedViews()

    @property
    def log(self) -> AuditLog:
        return self.server.chains.log_of(self.title)

    def trail(self, principal: Principal) -> Trail:
        return self.server.chains.trail_of(principal)

    def approvals(self) -> ApprovalStore:
        return ApprovalStore(self.server.chains.folder_of(self.title) / "approvals")

    def verify(self) -> Report:
        return check(self.server.chains.folder_of(self.title) / "audit", None)

    async def note_reading(self, principal: Principal, count: int) -> None:
        await self.server.chains.own(principal).write(RecordsRead("console", 0, count))

    def sign_all(self) -> int:
        return self.log.sign_all()

    async def open_sandboxes(self) -> Sequence[SandboxRow]:
        return [
            SandboxRow(each.id, each.policy, each.opened, each.expires, each.principal, each.metadata)
            for each in await list_open(self.server.database, self.title)
        ]

    async def policy_names(self) -> frozenset[str]:
        return frozenset(entry.name for entry in await list_policies(self.server.database, self.title))

    async def check_other(self, principal: Principal, asked_by: str) -> None:
        await check_other(self.server.database, principal, asked_by)

    async def gauges(self) -> Sequence[Gauge]:
        async with self.server.database.transaction(self.title) as transaction:
            limits = await read_limits(transaction, self.title)
            is_open, workspace_bytes = await count_open(transaction, self.title)
        return [
            Gauge("sandboxes", is_open, limits[Quota.SANDBOXES].value),
            Gauge("workspace", workspace_bytes, limits[Quota.WORKSPACE].value),
        ]
