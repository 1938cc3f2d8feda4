"""Ends in tenants' audit logs for what a server had open that is gone: it could not write them itself.

The rows of lost sandboxes say which; they are kept for a day, and what has an end gets no second one, so that a server
that dies while it writes ends is followed by one that writes the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import takewhile

from fumehood.audit.events import AuditEvent, RunFinished
from fumehood.audit.inspection import open_store
from fumehood.audit.log import AuditLog
from fumehood.audit.records import Entry, Record, timestamp
from fumehood.audit.store import Query
from fumehood.audit.trail import Trail
from fumehood.frozen import frozen
from fumehood.results import Cause, Status

SERVED_AS = "served_as"
"""The id in records by which the server and its clients know the sandbox."""
_ENDS_OF_RUNS = frozenset({"run.finished", "run.broke"})
_ENDS_OF_SANDBOXES = frozenset({"sandbox.closed", "sandbox.lost"})
# Clocks that were set meanwhile.
_MARGIN_SECONDS = 86400


@frozen
class SandboxLost(AuditEvent):
    """The server that had it open is gone, and the sandbox with it."""

    kind = "sandbox.lost"


def end_lost(log: AuditLog, opened: Mapping[str, float]) -> int:
    """Writes the ends that runs and sandboxes lack. `opened` has the server's ids and times. Returns how many.

    Blocks.
    """
    ends = list(_missing_ends(log, opened))
    if ends:
        Trail(log).write_blocking(*reversed(ends))
    return len(ends)


def _missing_ends(log: AuditLog, opened: Mapping[str, float]) -> Iterator[Entry]:
    """The newest first, so that no more is read than there is since the oldest of them was opened."""
    ended: set[str | None] = set()
    since = timestamp(min(opened.values()) - _MARGIN_SECONDS)
    with closing(open_store(log.folder)) as store:
        for record in takewhile(lambda each: each.time >= since, store.find(Query(newest_first=True))):
            if record.kind in _ENDS_OF_RUNS:
                ended.add(record.run_id)
            elif record.kind in _ENDS_OF_SANDBOXES:
                ended.add(record.sandbox_id)
            elif record.kind == "run.requested" and record.run_id not in ended and _is_of(record, opened):
                yield _stamp(log, record, _lost_run())
            elif record.kind == "sandbox.opened" and record.sandbox_id not in ended and _is_of(record, opened):
                yield _stamp(log, record, SandboxLost())


def _is_of(record: Record, opened: Mapping[str, float]) -> bool:
    return record.parse().get("ids", {}).get(SERVED_AS) in opened


def _stamp(log: AuditLog, record: Record, event: AuditEvent) -> Entry:
    """For whom the record was written, and with its ids."""
    fields = record.parse()
    return Trail(log, str(fields.get("who", "")), fields.get("tenant"), fields.get("ids", {})).stamp(event)


def _lost_run() -> RunFinished:
    detail = "its server ended while it was under way; what it had done by then is not known"
    unknown = (None,) * 7
    return RunFinished(Status.ERROR, Cause.LOST, None, None, detail, *unknown)
