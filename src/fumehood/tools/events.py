"""Audit events of tool calls."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood.audit.events import AuditEvent


@dataclass(frozen=True, slots=True)
class ToolCalled(AuditEvent):
    """Written before a person is asked and anything is done."""

    kind = "tool.called"

    tool: str
    risk: str
    digest: str


@dataclass(frozen=True, slots=True)
class ToolRefused(AuditEvent):
    """A call of an unknown tool, or with arguments that are not valid; no person was asked about it."""

    kind = "tool.refused"

    tool: str
    reason: str


@dataclass(frozen=True, slots=True)
class ToolReturned(AuditEvent):
    """A tool's result, recorded before the model receives it."""

    kind = "tool.returned"

    tool: str
    status: str
    run: str | None
