"""What tests of agents look at: the records of a task, and approvals that wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fumehood.audit import AuditLog, Query
from fumehood.tools.approvals import ApprovalStore


class Witness:
    """A log and approvals of a test's own."""

    def __init__(self, folder: Path) -> None:
        self.log = AuditLog.at(folder / "audit")
        self.store = ApprovalStore(folder / "approvals")

    def records(self, kind: str = "") -> list[dict[str, Any]]:
        found = [record.parse() for record in self.log.find(Query())]
        return [record for record in found if record["kind"].startswith(kind) and not record["kind"].startswith("log.")]

    def kinds(self) -> list[str]:
        return [record["kind"] for record in self.records()]

    def open_sandboxes(self) -> int:
        kinds = self.kinds()
        return kinds.count("sandbox.opened") - kinds.count("sandbox.closed")
