"""Egress: what went out and what was denied, by host and rule, with the smallest change that would let it out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from starlette.responses import Response

from fumehood.audit.records import Record
from fumehood.audit.store import Query
from fumehood.server.console.page_request import PageRequest
from fumehood.server.console.routes import ConsoleRoute, PageModule
from fumehood.server.console.run_rows import who_of
from fumehood.server.console.story import StoryTeller
from fumehood.server.identity.principals import Scope

_SCOPES = (Scope.RUN, Scope.AUDIT)
_MOST_LOOKED_AT = 5000
_MOST_ROWS = 200


@dataclass(slots=True)
class EgressRow:
    """All attempts on one thing that were decided alike."""

    what: str
    attempt: str
    """As `parse_attempt` reads it, or empty."""
    is_allowed: bool
    rule: str
    reason: str
    policy: str
    change: str
    count: int = 0
    last: str = ""
    run: str = ""
    """The last one that tried it."""
    seq: int = 0
    by: set[str] = field(default_factory=set[str])


async def show(page: PageRequest) -> Response:
    wanted = page.query("host").strip().lower()
    rows = await page.blocking(lambda: _rows(page, wanted))
    return page.page(
        "egress.html",
        denied=[row for row in rows if not row.is_allowed][:_MOST_ROWS],
        allowed=[row for row in rows if row.is_allowed][:_MOST_ROWS],
        host=wanted,
        looked_at=_MOST_LOOKED_AT,
        may_change=page.may(Scope.POLICIES) and not page.source.is_local,
    )


def _rows(page: PageRequest, wanted: str) -> list[EgressRow]:
    """The latest first. Blocks."""
    teller = StoryTeller(page.source.log)
    found: dict[tuple[object, ...], EgressRow] = {}
    for record in _records(page):
        data = record.data
        what = str(data.get("what", ""))
        if wanted and wanted not in what.lower():
            continue
        policy = teller.policy_of(record.sandbox_id)
        name = (policy.name if policy else None) or ""
        key = (record.kind, what, data.get("rule"), name)
        if key not in found:
            found[key] = _row(teller, record, name)
        row = found[key]
        row.count += int(data.get("count") or 1)
        row.by.add(who_of(record))
    return list(found.values())


def _records(page: PageRequest) -> Iterable[Record]:
    for record in page.source.log.find(Query(kind="egress", newest_first=True, limit=_MOST_LOOKED_AT)):
        if page.sees_all or page.is_own(who_of(record)):
            yield record


def _row(teller: StoryTeller, record: Record, policy: str) -> EgressRow:
    data, decision = record.data, teller.decision(record)
    return EgressRow(
        what=str(data.get("what", "")),
        attempt=decision.attempt if decision.reason or decision.fix else "",
        is_allowed=record.kind == "egress.allowed",
        rule=str(data.get("rule") or ""),
        reason=str(data.get("reason") or ""),
        policy=policy,
        change=decision.fix,
        last=record.time,
        run=record.run_id or "",
        seq=record.seq,
    )


MODULE = PageModule((ConsoleRoute("/egress", show, _SCOPES, nav="Egress", key="e"),), {})
