"""What the audit log learns of agents and messages.

The ids of a record say which runtime, which message and which agent; `cause` is the message that led to this one, so
that a whole conversation can be followed. Sandboxes that agents open carry the same ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fumehood.audit.events import AuditEvent, Content


@dataclass(frozen=True, slots=True)
class RuntimeStarted(AuditEvent):
    kind = "runtime.started"

    process: int


@dataclass(frozen=True, slots=True)
class RuntimeStopped(AuditEvent):
    kind = "runtime.stopped"


@dataclass(frozen=True, slots=True)
class AgentRegistered(AuditEvent):
    """From here on messages of these types find it."""

    kind = "agent.registered"

    type: str
    takes: tuple[str, ...]
    subscriptions: tuple[str, ...]
    grants: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class AgentGranted(AuditEvent):
    """Its grants are these from now on."""

    kind = "agent.granted"

    agent: str
    grants: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class AgentSubscribed(AuditEvent):
    kind = "agent.subscribed"

    topic: str


@dataclass(frozen=True, slots=True)
class AgentCreated(AuditEvent):
    kind = "agent.created"


@dataclass(frozen=True, slots=True)
class AgentStopped(AuditEvent):
    kind = "agent.stopped"

    error: str | None


@dataclass(frozen=True, slots=True)
class MessageSent(AuditEvent):
    """Written before anybody gets it."""

    kind = "message.sent"

    type: str
    sender: str | None
    to: str
    body: Content
    cause: str | None
    hops: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class MessagePublished(AuditEvent):
    """Written before anybody gets it."""

    kind = "message.published"

    type: str
    sender: str | None
    topic: str
    recipients: tuple[str, ...]
    body: Content
    cause: str | None
    hops: int


@dataclass(frozen=True, slots=True)
class MessageDelivered(AuditEvent):
    """The handler begins."""

    kind = "message.delivered"


@dataclass(frozen=True, slots=True)
class MessageHandled(AuditEvent):
    """Written before the sender gets the answer."""

    kind = "message.handled"

    answer: str | None
    """The type of the answer."""
    body: Content
    duration_us: int


@dataclass(frozen=True, slots=True)
class MessageDead(AuditEvent):
    kind = "message.dead"

    type: str
    sender: str | None
    target: str
    reason: str
    error: str | None
    """The name of an agent's error. Its text may hold anything, and stays out."""


@dataclass(frozen=True, slots=True)
class GrantDenied(AuditEvent):
    """An agent tried what it has no grant for; nothing was done."""

    kind = "grant.denied"

    action: str
    target: str
