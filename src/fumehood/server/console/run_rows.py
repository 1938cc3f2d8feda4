"""Runs as rows of a list: the records of each, summed up. Pure, but for reading the log."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from fumehood.audit.records import Record
from fumehood.audit.store import Query
from fumehood.frozen import frozen
from fumehood.server.console.source import RecordReader

_MOST_LOOKED_AT = 3000
DENIALS = frozenset({"egress.denied", "request.denied", "sandbox.refused", "grant.denied", "port.denied"})
_ENDS = frozenset({"run.finished", "run.broke", "request.denied"})
_TONES = {"success": "good", "running": "live", "asked": "live", "cancelled": "warn"}


@frozen
class RunRow:
    id: str
    sandbox: str
    who: str
    agent: str
    time: str
    """When it was asked for."""
    what: str
    state: str
    detail: str
    duration_us: int | None
    cpu_us: int | None
    memory_bytes: int | None
    denials: int
    seq: int
    """Of its first record."""

    @property
    def tone(self) -> str:
        return _TONES.get(self.state, "bad")

    @property
    def is_over(self) -> bool:
        return self.state not in ("asked", "running")


def sum_up(records: Sequence[Record]) -> RunRow:
    """The records of one run, in their order."""
    first = records[0]
    fields, ids = first.parse(), first.parse().get("ids", {})
    row: dict[str, Any] = {"what": "", "state": "asked", "detail": "", "denials": 0}
    row |= dict.fromkeys(("duration_us", "cpu_us", "memory_bytes"))
    for record in records:
        _add(row, record.kind, record.data)
    return RunRow(
        id=first.run_id or "",
        sandbox=first.sandbox_id or "",
        who=str(fields.get("who", "?")),
        agent=str(ids.get("agent", "")) if isinstance(ids, dict) else "",  # pyright: ignore[reportUnknownArgumentType,reportUnknownMemberType]
        time=first.time,
        seq=first.seq,
        **row,
    )


def _add(row: dict[str, Any], kind: str, data: dict[str, Any]) -> None:
    match kind:
        case "run.requested":
            row["what"] = str(data.get("command") or data.get("language") or "")
        case "run.started":
            row["state"] = "running"
        case "run.finished":
            row["state"] = str(data.get("status"))
            row["detail"] = _end(data)
            row |= {name: _number(data.get(name)) for name in ("duration_us", "cpu_us")}
            row["memory_bytes"] = _number(data.get("peak_memory_bytes"))
        case "run.broke":
            row |= {"state": "broke", "detail": str(data.get("reason"))}
        case "request.denied":
            row |= {"state": "denied", "detail": str(data.get("reason")), "denials": row["denials"] + 1}
        case "egress.denied":
            row["denials"] += 1
        case _:
            pass


def _end(data: dict[str, Any]) -> str:
    if data.get("detail"):
        return str(data["detail"])
    if data.get("signal"):
        return f"signal {data['signal']}"
    return f"exit {data['exit_code']}" if data.get("exit_code") else ""


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def who_of(record: Record) -> str:
    return str(record.parse().get("who", "?"))


@frozen
class Lately:
    runs: tuple[RunRow, ...]
    denials: tuple[Record, ...]


def lately(log: RecordReader, most: int, who: str | None) -> Lately:
    """The newest runs and denials, the newest first; only those of `who`, if it is given."""
    runs: dict[str, list[Record]] = {}
    denials: list[Record] = []
    for record in log.find(Query(newest_first=True, limit=_MOST_LOOKED_AT)):
        if who is not None and who_of(record) != who:
            continue  # before they are counted: others' runs do not crowd out the viewer's
        if record.run_id is not None and (record.run_id in runs or len(runs) < most):
            runs.setdefault(record.run_id, []).append(record)
        if record.kind in DENIALS and len(denials) < most:
            denials.append(record)
    rows = (sum_up(_whole(log, run, found)) for run, found in runs.items())
    shown = sorted((row for row in rows if who is None or row.who == who), key=lambda row: -row.seq)
    return Lately(tuple(shown), tuple(denials[:20]))


def _whole(log: RecordReader, run: str, found: list[Record]) -> list[Record]:
    ordered = found[::-1]
    is_whole = ordered[0].kind in ("run.requested", "request.denied")
    return ordered if is_whole else run_records(log, run)


def run_records(log: RecordReader, run: str, most: int = 2000) -> list[Record]:
    return list(islice(log.find(Query(run_id=run)), most))
