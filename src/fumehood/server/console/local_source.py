"""The audit log and the approvals of one user on this machine, as the console shows them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from fumehood.audit.inspection import check, open_store
from fumehood.audit.log import AuditLog, current_user
from fumehood.audit.records import Record
from fumehood.audit.sqlite import SqliteStore
from fumehood.audit.store import Query
from fumehood.audit.trail import Trail
from fumehood.audit.verification import Report
from fumehood.errors import AuditError
from fumehood.server.console.news import NewsFeed
from fumehood.server.console.recorded_views import RecordedViews
from fumehood.server.console.source import Gauge, SandboxRow
from fumehood.server.console.threads import LogThreads
from fumehood.server.console.verification_state import Verification
from fumehood.server.identity.principals import Principal
from fumehood.tools.approvals import ApprovalStore

_MOST_LOOKED_AT = 500


class LocalLogSource:
    """`place` is the folder of a log; without it the user's own, whose approvals can be answered, too."""

    is_local = True

    def __init__(self, place: Path | None = None) -> None:
        self._place = place
        self._store: SqliteStore | None = None
        self.is_own = place is None
        self.title = current_user() if place is None else os.fspath(place)
        self.blocking = LogThreads("")
        self.feed = NewsFeed(lambda: self.log, self.blocking)
        self.verification = Verification(self.verify, self.blocking)
        self.views = RecordedViews()
        if place is None and AuditLog.default() is None:
            raise AuditError("the audit log is turned off (FUMEHOOD_AUDIT=off), and there is nothing to show")

    @property
    def log(self) -> SqliteStore:
        if self._store is None or self._store.is_replaced():
            self._store = open_store(self._place)
        return self._store

    def trail(self, principal: Principal) -> Trail:
        return Trail(AuditLog.default() if self.is_own else None, principal.name)

    def approvals(self) -> ApprovalStore:
        return ApprovalStore()

    def verify(self) -> Report:
        return check(self._place, None)

    async def note_reading(self, principal: Principal, count: int) -> None:
        """It is the reader's own."""

    def sign_all(self) -> int:
        own = AuditLog.default() if self.is_own else None
        return own.sign_all() if own else self.log.head().seq

    async def open_sandboxes(self) -> Sequence[SandboxRow]:
        """Those that were opened lately, have no end on record, and whose process is there."""
        opened: dict[str, Record] = {}
        for record in self.log.find(Query(kind="sandbox", newest_first=True, limit=_MOST_LOOKED_AT)):
            if record.sandbox_id is not None and record.sandbox_id not in opened:
                opened[record.sandbox_id] = record
        found = (record for record in opened.values() if record.kind == "sandbox.opened" and _is_alive(record))
        return [_row(record) for record in found]

    async def policy_names(self) -> frozenset[str]:
        return frozenset()

    async def check_other(self, principal: Principal, asked_by: str) -> None:
        """A person at this machine answers what a program of theirs has asked."""

    async def gauges(self) -> Sequence[Gauge]:
        return []


def _is_alive(record: Record) -> bool:
    process = record.data.get("process")
    return isinstance(process, int) and os.path.exists(f"/proc/{process}")


def _row(record: Record) -> SandboxRow:
    fields = record.parse()
    opened = datetime.fromisoformat(record.time).timestamp()
    policy = str(record.data.get("policy_name") or "without a name")
    return SandboxRow(record.sandbox_id or "", policy, opened, None, str(fields.get("who")), {})
