"""What a tool gives back: words for the model, and the facts for the application."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fumehood.results import RunResult


class ToolStatus(StrEnum):
    SUCCESS = "success"
    ERROR = "error"
    """It was carried out and failed; the text says how."""
    DENIED = "denied"
    """The policy, or a person, said no; nothing was carried out."""
    INVALID = "invalid"
    """The call made no sense; the text says what to send instead."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    text: str
    """For the model."""
    status: ToolStatus = ToolStatus.SUCCESS
    run: RunResult | None = None
    """Of a tool that ran something in the sandbox: all of it, with the whole output."""
    value: object = None
    """Of a function: what it returned."""

    @property
    def ok(self) -> bool:
        return self.status is ToolStatus.SUCCESS
