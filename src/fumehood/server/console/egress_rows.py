"""What went out and what was denied, as rows of a list: attempts that were decided alike are one row. Reads the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fumehood.audit.records import Record
from fumehood.audit.store import Query
from fumehood.server.console.run_rows import who_of, whole_number
from fumehood.server.console.source import RecordReader
from fumehood.server.console.story import StoryTeller

MOST_LOOKED_AT = 5000


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


def egress_rows(
    log: RecordReader,
    is_shown: Callable[[Record], bool] = lambda _: True,
    *,
    host: str = "",
    of_policy: str | None = None,
) -> list[EgressRow]:
    """The latest first; of records that are shown, with `host` in what was tried. Blocks."""
    teller = StoryTeller(log)
    found: dict[tuple[object, ...], EgressRow] = {}
    for record in log.find(Query(kind="egress", newest_first=True, limit=MOST_LOOKED_AT)):
        data = record.data
        what = str(data.get("what", ""))
        if host not in what.lower() or not is_shown(record):
            continue
        policy = teller.policy_of(record.sandbox_id)
        name = (policy.name if policy else None) or ""
        if of_policy is not None and name != of_policy:
            continue
        key = (record.kind, what, str(data.get("rule")), name)
        if key not in found:
            found[key] = _row(teller, record, name)
        row = found[key]
        row.count += whole_number(data.get("count")) or 1
        row.by.add(who_of(record))
    return list(found.values())


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
