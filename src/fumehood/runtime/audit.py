"""The runtime's records in the audit log: events of agents and messages, written before their results are returned.

The ids of a record name the runtime, the message and the agent; `cause` is the message that led to this one, so that a
whole conversation can be followed. Sandboxes that agents open carry the same ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import anyio

from fumehood.audit import Trail
from fumehood.audit.events import AuditEvent, Content, as_content
from fumehood.audit.records import Entry
from fumehood.errors import AuditError
from fumehood.policy.audit import Kept


@dataclass(frozen=True, slots=True)
class RuntimeStarted(AuditEvent):
    kind = "runtime.started"

    process: int


@dataclass(frozen=True, slots=True)
class RuntimeStopped(AuditEvent):
    kind = "runtime.stopped"


@dataclass(frozen=True, slots=True)
class AgentRegistered(AuditEvent):
    """An agent was registered: messages of these types are delivered to it from now on."""

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
    """Written before it is delivered."""

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
    """Written before it is delivered."""

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
    """The class name of an agent's error. Its text may contain secrets and is not recorded."""


@dataclass(frozen=True, slots=True)
class GrantDenied(AuditEvent):
    """An agent attempted what it has no grant for; nothing was done."""

    kind = "grant.denied"

    action: str
    target: str


class _Batch:
    def __init__(self) -> None:
        self.events: list[Entry] = []
        self.is_written = anyio.Event()
        self.error: str | None = None


class RuntimeAudit:
    """Writes records in batches: concurrent writers share one commit, which is most of what a record costs.

    When the log cannot be written, each writer of the batch gets an AuditError, and what it wanted to record does not
    happen.
    """

    def __init__(self, trail: Trail, keep: Kept) -> None:
        self.trail = trail
        self._keep: Kept = keep
        self.is_on = trail.is_on
        self._batch: _Batch | None = None
        self._wanted: anyio.Event | None = None
        self._is_running = False

    def content(self, data: bytes) -> Content:
        return as_content(data, self._keep)

    def stamp(self, event: AuditEvent, ids: Mapping[str, str]) -> Entry:
        return self.trail.within(**ids).stamp(event)

    async def record(self, event: AuditEvent, **ids: str) -> None:
        if self.is_on:
            await self.write(self.stamp(event, ids))

    async def write(self, *events: Entry) -> None:
        """AuditError when they are not in the log."""
        if not self._is_running:
            await self.trail.write(*events)
            return
        if self._batch is None:
            self._batch = _Batch()
        batch = self._batch
        batch.events.extend(events)
        if self._wanted is not None:
            self._wanted.set()
        await batch.is_written.wait()
        if batch.error is not None:
            raise AuditError(batch.error)

    async def run(self) -> None:
        """Writes in a task of its own, so that a cancelled writer does not cancel what others write."""
        self._is_running = True
        try:
            while True:
                if self._batch is None:
                    self._wanted = anyio.Event()
                    await self._wanted.wait()
                await self._write_batch()
        finally:
            self._is_running = False
            if self._batch is not None:
                self._batch.error = "the runtime has stopped"
                self._batch.is_written.set()

    async def _write_batch(self) -> None:
        batch, self._batch = self._batch, None
        if batch is None:
            return
        batch.error = "it was not written"
        try:
            with anyio.CancelScope(shield=True):
                await self.trail.write(*batch.events)
            batch.error = None
        except AuditError as error:
            batch.error = str(error)
        finally:
            batch.is_written.set()
