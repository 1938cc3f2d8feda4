"""Tasks of agents: which there were, and all records of one, in order, its runs included. Reads the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from fumehood.audit.records import Record
from fumehood.audit.store import Query
from fumehood.frozen import frozen
from fumehood.server.console.source import RecordReader

_TASK = "task"
_RUNNING = "running"


@frozen
class TaskRow:
    id: str
    name: str
    who: str
    model: str
    time: str
    state: str
    """`running`, or why it stopped."""
    detail: str
    turns: int
    tokens: int
    cost_microdollars: int | None
    """None if it is not known."""
    calls: int
    seq: int

    @property
    def tone(self) -> str:
        return {"running": "live", "done": "good"}.get(self.state, "warn")


def ids_of(record: Record) -> dict[str, Any]:
    ids = record.parse().get("ids")
    return cast("dict[str, Any]", ids) if isinstance(ids, dict) else {}


def list_tasks(log: RecordReader, most: int, who: str | None) -> list[TaskRow]:
    """The newest first; only those of `who`, if it is given."""
    ends: dict[str, Record] = {}
    rows: dict[str, TaskRow] = {}
    for record in log.find(Query(kind=_TASK, newest_first=True)):
        task = str(ids_of(record).get(_TASK, ""))
        if record.kind == "task.ended":
            ends.setdefault(task, record)
        elif record.kind == "task.started" and task not in rows:
            row = task_row(record, ends.get(task))
            if who is None or row.who == who:
                rows[task] = row
        if len(rows) >= most:
            break
    return list(rows.values())


def task_row(started: Record, ended: Record | None) -> TaskRow:
    data, end = started.data, ended.data if ended else {}
    return TaskRow(
        id=str(ids_of(started).get(_TASK, "")),
        name=str(data.get("name", "?")),
        who=str(started.parse().get("who", "?")),
        model=str(data.get("model", "")),
        time=started.time,
        state=str(end.get("stop", _RUNNING)),
        detail=str(end.get("detail", "")),
        turns=_number(end.get("turns")),
        tokens=_number(end.get("tokens")),
        cost_microdollars=_number(end["cost_microdollars"]) if "cost_microdollars" in end else None,
        calls=_number(end.get("tool_calls")),
        seq=started.seq,
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def find_task(log: RecordReader, task: str) -> TaskRow | None:
    started = ended = None
    for record in log.find(Query(kind=_TASK, text=task)):
        if ids_of(record).get(_TASK) != task:
            continue
        if record.kind == "task.started":
            started, ended = started or record, None
        elif record.kind == "task.ended":
            ended = record
    return task_row(started, ended) if started else None


class TaskMembership:
    """Whether a record belongs to a task: it names it, or it is of a run in a sandbox while the task's call is open.

    Records have to be shown in their order. What the task has used so far is counted along the way.
    """

    def __init__(self, task: str) -> None:
        self._task = task
        self._turns = self._tokens = self._tool_calls = self._seen = 0
        self._cost: int | None = 0
        self._calls: dict[str, str] = {}
        """Calls under way -> their sandbox."""
        self.runs: set[str] = set()

    def has(self, record: Record) -> bool:
        ids = ids_of(record)
        is_own = ids.get(_TASK) == self._task
        call = str(ids.get("call", ""))
        if is_own and record.kind == "tool.called":
            self._calls[call] = record.sandbox_id or ""
        elif is_own and record.kind == "tool.returned":
            self._calls.pop(call, None)
        if not is_own and record.kind == "run.requested" and record.sandbox_id in self._calls.values():
            self.runs.add(record.run_id or "")
        if record.kind == "request.denied" and record.sandbox_id in self._calls.values():
            self.runs.add(record.run_id or "")
        if is_own and record.seq > self._seen:
            self._count(record)
        self._seen = max(self._seen, record.seq)
        return is_own or (record.run_id is not None and record.run_id in self.runs)

    def _count(self, record: Record) -> None:
        if record.kind == "tool.called":
            self._tool_calls += 1
        elif record.kind == "model.answered":
            data = record.data
            self._turns += 1
            self._tokens += _number(data.get("input_tokens")) + _number(data.get("output_tokens"))
            cost = data.get("cost_microdollars")
            self._cost = self._cost + cost if isinstance(cost, int) and self._cost is not None else None

    def so_far(self, row: TaskRow) -> TaskRow:
        """The row of a task that goes on, with what it has used; what its last record says of one that has ended."""
        if row.state != _RUNNING:
            return row
        return replace(
            row, turns=self._turns, tokens=self._tokens, calls=self._tool_calls, cost_microdollars=self._cost
        )


def task_records(log: RecordReader, row: TaskRow, members: TaskMembership) -> Iterator[Record]:
    """From its start on, to its end if it has one."""
    for record in log.find(Query(after=row.seq - 1)):
        if members.has(record):
            yield record
        if record.kind == "task.ended" and ids_of(record).get(_TASK) == row.id and row.state != _RUNNING:
            return
