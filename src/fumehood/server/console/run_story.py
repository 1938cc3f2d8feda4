"""Which records belong to a run: its own, and those of the tool call and the approval that led to it."""

from __future__ import annotations

from itertools import takewhile

from fumehood.audit.records import Record
from fumehood.audit.store import Query
from fumehood.frozen import frozen
from fumehood.server.console.run_rows import ids_of, run_records
from fumehood.server.console.source import RecordReader

_MOST_LOOKED_AT = 5000


@frozen
class RunRecords:
    records: tuple[Record, ...]
    task: str
    """The task of an agent that it belongs to, if it is of one."""


def records_around(log: RecordReader, run: str) -> RunRecords:
    own = run_records(log, run)
    called = _call_of(log, own[0], run) if own else None
    if called is None:
        return RunRecords(tuple(own), "")
    first, call, task = called
    digest = first.data.get("digest")
    between = takewhile(
        lambda record: record.seq <= own[-1].seq, log.find(Query(after=first.seq, limit=_MOST_LOOKED_AT))
    )
    led = [
        record
        for record in between
        if record.run_id is None and (record.kind.startswith("approval.") and record.data.get("digest") == digest)
    ]
    story = sorted({record.seq: record for record in (first, *led, *own)}.values(), key=lambda record: record.seq)
    return RunRecords(tuple(story), task if call else "")


def _call_of(log: RecordReader, first: Record, run: str) -> tuple[Record, str, str] | None:
    """The record of the call whose result names this run, or of the one that was under way when it began."""
    if first.sandbox_id is None:
        return None
    under_way: dict[str, Record] = {}
    for record in log.find(Query(sandbox_id=first.sandbox_id, kind="tool")):
        ids = ids_of(record)
        call, task = str(ids.get("call", "")), str(ids.get("task", ""))
        if record.kind == "tool.called":
            under_way[call] = record
        elif record.data.get("run") == run:
            return (under_way[call], call, task) if call in under_way else None
        elif record.seq < first.seq:
            under_way.pop(call, None)
    return _newest_before(under_way, first)


def _newest_before(calls: dict[str, Record], first: Record) -> tuple[Record, str, str] | None:
    """Of a run that is not over: its call has not returned."""
    found = [(record, call) for call, record in calls.items() if record.seq < first.seq]
    if len(found) != 1:
        return None
    record, call = found[0]
    return record, call, str(ids_of(record).get("task", ""))
