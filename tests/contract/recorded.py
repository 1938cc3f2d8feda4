"""The records of a test's sandboxes, wherever these are."""

from __future__ import annotations

from typing import Any, NamedTuple

from fumehood.audit import AuditLog, Query
from fumehood.audit.records import Record


class Recorded(NamedTuple):
    log: AuditLog
    options: dict[str, Any]
    """How a sandbox is told to use it; one at a server uses the server's."""
    before: int
    """The number of the last record of others."""

    def records(self) -> list[Record]:
        return [record for record in self.log.find(Query()) if record.seq > self.before]
