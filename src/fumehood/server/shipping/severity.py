"""How much a record matters to those who watch many systems, on the scale of OCSF."""

from __future__ import annotations

from enum import IntEnum

from fumehood.audit.records import Record


class Severity(IntEnum):
    INFORMATIONAL = 1
    LOW = 2
    MEDIUM = 3
    HIGH = 4
    CRITICAL = 5


_BY_KIND = {
    "canary.seen": Severity.CRITICAL,
    "run.broke": Severity.HIGH,
    "server.lost": Severity.HIGH,
    "log.pruned": Severity.MEDIUM,
}


def severity_of(record: Record) -> Severity:
    if record.kind in _BY_KIND:
        return _BY_KIND[record.kind]
    if record.kind.endswith((".denied", ".refused")):
        return Severity.MEDIUM
    return Severity.LOW if record.data.get("status") == "denied" else Severity.INFORMATIONAL
