"""The verbs that list named sandboxes and snapshots."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from fumehood.characters import neutralise
from fumehood.cli.output import BOLD, paint
from fumehood.policy import format_size
from fumehood.remote.place import named_sandboxes
from fumehood.snapshots import NamedSandbox

if TYPE_CHECKING:
    from fumehood.cli.sandbox import Arguments
    from fumehood.snapshots.records import SnapshotRecord

_UNITS = (("day", 86_400), ("hour", 3600), ("minute", 60))


def list_all(chosen: Arguments) -> int:
    store = named_sandboxes()
    found = store.snapshots() if chosen.snapshots else store.sandboxes()
    if chosen.json:
        print(json.dumps([record.model_dump(mode="json", exclude={"policy"}) for record in found]))
        return 0
    width = max((len(record.name or "-") for record in found), default=0)
    for record in found:
        print(_in_words(record, width) if isinstance(record, NamedSandbox) else _snapshot_in_words(record, width))
    if not found:
        print(
            "no snapshots; `hood sandbox snapshot NAME` makes one"
            if chosen.snapshots
            else "no sandboxes; `hood sandbox create NAME` makes one"
        )
    return 0


def show(chosen: Arguments) -> int:
    store = named_sandboxes()
    record = store.find(chosen.name)
    if chosen.json:
        files = [
            {"path": entry.path, "kind": entry.kind, "size": entry.size, "sha256": entry.sha256 or None}
            for entry in store.entries(chosen.name)
        ]
        print(json.dumps({**record.model_dump(mode="json"), "policy": json.loads(record.policy), "entries": files}))
        return 0
    print(_in_words(record))
    print(f"  state     {record.snapshot}")
    print(f"  policy    {neutralise(record.policy_name or 'without a name')}, {record.policy_digest}")
    print(f"  made      {_ago(record.created)}")
    for made in store.snapshots():
        if made.sandbox == record.name and made.name:
            print(f"  snapshot  {neutralise(made.name)}, {described(made)}, made {_ago(made.created)}")
    return 0


def _in_words(record: NamedSandbox, width: int = 0) -> str:
    name = paint(f"{record.name:{width}}", BOLD)
    return f"{name}  {record.snapshot[:12]}  {described(record)}, used {_ago(record.used)}"


def _snapshot_in_words(record: SnapshotRecord, width: int) -> str:
    source = f", of {record.sandbox}" if record.sandbox else ""
    name = paint(f"{record.name or '-':{width}}", BOLD)
    return f"{name}  {record.snapshot[:12]}  {described(record)}, made {_ago(record.created)}{source}"


def described(record: NamedSandbox | SnapshotRecord) -> str:
    return f"{record.files} file{'s' * (record.files != 1)}, {_size(record.size_bytes)}"


def _size(size_bytes: int) -> str:
    """About as much as it is; `format_size` is exact, which a list need not be."""
    for unit, bytes_each in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size_bytes >= 10 * bytes_each:
            return f"{size_bytes // bytes_each} {unit}"
    return format_size(size_bytes) if size_bytes else "empty"


def _ago(moment: float) -> str:
    seconds = max(0, time.time() - moment)
    for unit, length in _UNITS:
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'s' * (count > 1)} ago"
    return "just now"
