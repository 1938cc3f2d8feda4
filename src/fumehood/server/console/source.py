"""Where pages read from and answer to: a tenant of a server, or the audit log and the approvals of one user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from fumehood.audit.records import Head, Record
from fumehood.audit.store import Query
from fumehood.audit.trail import Trail
from fumehood.audit.verification import Report
from fumehood.frozen import frozen
from fumehood.server.console.news import NewsFeed
from fumehood.server.console.recorded_views import RecordedViews
from fumehood.server.console.threads import Blocking
from fumehood.server.console.verification_state import Verification
from fumehood.server.identity.principals import Principal
from fumehood.tools.approvals import ApprovalStore


class RecordReader(Protocol):
    """A log as pages read it: `AuditLog` and `SqliteStore` do."""

    @property
    def path(self) -> Path: ...

    def head(self) -> Head: ...

    def find(self, query: Query) -> Iterator[Record]: ...

    def attachment(self, sha256: str) -> bytes | None: ...


@frozen
class SandboxRow:
    """An open sandbox."""

    id: str
    policy: str
    opened: float
    expires: float | None
    opened_by: str
    metadata: Mapping[str, str]


@frozen
class Gauge:
    """Something of which there is so much, and so much is used."""

    name: str
    used: float
    limit: float

    @property
    def percent(self) -> int:
        return min(100, round(100 * self.used / self.limit)) if self.limit else 100


class ConsoleSource(Protocol):
    """One for each log. What blocks is called by `blocking`."""

    is_local: bool
    """Of one user on this machine, who is the only one that looks at it."""
    title: str
    feed: NewsFeed
    verification: Verification
    views: RecordedViews

    @property
    def blocking(self) -> Blocking: ...

    @property
    def log(self) -> RecordReader:
        """AuditError if it cannot be read."""
        ...

    def trail(self, principal: Principal) -> Trail: ...

    def approvals(self) -> ApprovalStore: ...

    def verify(self) -> Report:
        """Goes through the whole log. Blocks."""
        ...

    async def note_reading(self, principal: Principal, count: int) -> None:
        """That somebody has read so many records."""
        ...

    def sign_all(self) -> int:
        """Sign what is not signed yet, before it leaves. The number of the last record that is."""
        ...

    async def open_sandboxes(self) -> Sequence[SandboxRow]: ...

    async def policy_names(self) -> frozenset[str]:
        """Of the catalogue, whose policies can be changed; empty where there is none."""
        ...

    async def check_other(self, principal: Principal, asked_by: str) -> None:
        """DeniedError if the principal is the one who asked, under whatever name, and that matters here."""
        ...

    async def gauges(self) -> Sequence[Gauge]:
        """What there is room for."""
        ...
