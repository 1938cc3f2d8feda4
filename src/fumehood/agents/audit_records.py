"""Records of tasks in the audit log. Calls of tools, approvals and runs of a task carry its id, `task`, themselves."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood.audit.events import AuditEvent, Content
from fumehood.audit.trail import Trail


def microdollars(dollars: float) -> int:
    """Records have whole numbers."""
    return round(dollars * 1_000_000)


def of_agent(trail: Trail, name: str) -> Trail:
    """In a runtime, `agent` is the runtime's own id of it; names inside of that are another id, `participant`."""
    return trail.within(participant=name) if "runtime" in trail.ids else trail.within(agent=name)


@dataclass(frozen=True, slots=True)
class TaskStartRecord(AuditEvent):
    kind = "task.started"

    name: str
    task: Content
    """None of a task that goes on after a pause."""
    model: str
    tools: tuple[str, ...]
    policy_digest: str | None


@dataclass(frozen=True, slots=True)
class MessageReceived(AuditEvent):
    """What an agent is told, after the filters; recorded where the policy keeps code in full."""

    kind = "message.received"

    text: Content


@dataclass(frozen=True, slots=True)
class TaskEndRecord(AuditEvent):
    kind = "task.ended"

    name: str
    stop: str
    detail: str | None
    turns: int
    tokens: int
    tool_calls: int
    cost_microdollars: int | None
    """None if the price of a turn is not known."""


@dataclass(frozen=True, slots=True)
class ModelAnswered(AuditEvent):
    """A model's answer, recorded before its calls are executed."""

    kind = "model.answered"

    model: str
    answer: Content
    calls: tuple[str, ...]
    input_tokens: int
    output_tokens: int
    cost_microdollars: int | None
    """What the model, or the price list for it, says; None if neither does."""


@dataclass(frozen=True, slots=True)
class ModelFailed(AuditEvent):
    kind = "model.failed"

    model: str
    failure: str
    detail: str


@dataclass(frozen=True, slots=True)
class ConversationCompacted(AuditEvent):
    """The conversation was shortened for the model; earlier records keep the messages unchanged."""

    kind = "model.compacted"

    model: str
    why: str
    messages_before: int
    messages_after: int
    tokens_before: int
    tokens_after: int


@dataclass(frozen=True, slots=True)
class SpeakerChosen(AuditEvent):
    """The next speaker of a team was chosen."""

    kind = "team.turn"

    team: str
    speaker: str
    why: str
