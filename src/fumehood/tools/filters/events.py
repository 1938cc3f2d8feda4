"""What the audit log learns of filters: that something was found and what was done, never what it was."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood.audit.events import AuditEvent


@dataclass(frozen=True, slots=True)
class FilterActed(AuditEvent):
    kind = "filter.acted"

    direction: str
    filter: str
    action: str
    what: str
    count: int
