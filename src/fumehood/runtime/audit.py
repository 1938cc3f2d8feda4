"""The runtime's records in the audit log: events of agents and messages, written before their results are returned.

The ids of a record name the runtime, the message and the agent; `cause` is the message that led to this one, so that a
whole conversation can be followed. Sandboxes that agents open carry the same ids.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import TaskGroup

from fumehood.audit import AuditLog, Trail
from fumehood.audit.checkpoints import EVERY_RECORDS, Checkpoint
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
class MessageHandled(AuditEvent):
    """Written before the sender gets the answer."""

    kind = "message.handled"

    answer: str | None
    """The type of the answer."""
    body: Content
    duration_us: int
    """How long ago it was delivered, and its handler began."""


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


# More are not written in one commit, so that signatures are in time.
_MOST_RECORDS = EVERY_RECORDS
_STOPPED = "the runtime has stopped"

Then = Callable[[str | None], None]
"""Is called when a record is written, or with the reason why it is not."""


class _Batch:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.is_written = anyio.Event()
        self.then: list[Then] = []
        self.error: str | None = None

    def end(self) -> None:
        """Lets the writers go on."""
        self.is_written.set()
        for then in self.then:
            then(self.error)


class RuntimeAudit:
    """Writes records in batches: a group commit of all writers that are ready at the same moment.

    When the log cannot be written, each writer of the batch gets an AuditError, and what it wanted to record does not
    happen. Signatures are made between two batches, and put on the disk beside the batches that follow.
    """

    def __init__(self, trail: Trail, keep: Kept) -> None:
        self.trail = trail
        self._keep: Kept = keep
        self.is_on = trail.is_on
        self._batches: deque[_Batch] = deque()
        self._wanted: anyio.Event | None = None
        self._is_kept = anyio.Event()
        self._is_kept.set()
        self._unkept: AuditError | None = None
        self._is_running = False

    def content(self, data: bytes) -> Content:
        return as_content(data, self._keep)

    def stamp(self, event: AuditEvent, ids: Mapping[str, str]) -> Entry:
        return self.trail.stamp(event, **ids)

    async def record(self, event: AuditEvent, **ids: str) -> None:
        if self.is_on:
            await self.write(self.stamp(event, ids))

    async def write(self, entry: Entry) -> None:
        """AuditError when it is not in the log."""
        if not self._is_running:
            await self.trail.write(entry)
            return
        batch = self._add(entry)
        await batch.is_written.wait()
        if batch.error is not None:
            raise AuditError(batch.error)

    def write_then(self, entry: Entry, then: Then) -> None:
        """A `write` for which no task waits."""
        if self._is_running:
            self._add(entry).then.append(then)
        else:
            then(_STOPPED)

    def _add(self, entry: Entry) -> _Batch:
        if not self._batches or len(self._batches[-1].entries) >= _MOST_RECORDS:
            self._batches.append(_Batch())
        self._batches[-1].entries.append(entry)
        if self._wanted is not None:
            self._wanted.set()
        return self._batches[-1]

    async def run(self) -> None:
        """Writes in a task of its own, so that a cancelled writer does not cancel what others write."""
        self._is_running = True
        try:
            async with anyio.create_task_group() as group:
                while True:
                    await self._collect()
                    with anyio.CancelScope(shield=True):
                        await self._write_batch(group)
        finally:
            self._is_running = False
            for batch in self._batches:
                batch.error = _STOPPED
                batch.end()

    async def _collect(self) -> None:
        """Waits for a writer, and for those that can go on at once: until a turn of the event loop brings no more."""
        if not self._batches:
            self._wanted = anyio.Event()
            await self._wanted.wait()
        first, count = self._batches[0].entries, 0
        while count < len(first) < _MOST_RECORDS:
            count = len(first)
            await anyio.lowlevel.checkpoint()

    async def _write_batch(self, group: TaskGroup) -> None:
        batch = self._batches.popleft()
        batch.error = "it was not written"
        try:
            self._refuse_unkept()
            await self._sign(group)  # only what could not be signed before
            await self.trail.append(*batch.entries)
            batch.error = None
        except AuditError as error:
            batch.error = str(error)
        finally:
            batch.end()
        with suppress(AuditError):  # the next batch has it
            await self._sign(group)

    async def _sign(self, group: TaskGroup) -> None:
        log = self.trail.log
        if log is None or not log.may_need_checkpoint():
            return
        await self._is_kept.wait()
        signed = await anyio.to_thread.run_sync(log.sign_if_due)
        if signed is not None:
            self._is_kept = anyio.Event()
            group.start_soon(self._keep_checkpoint, log, signed)

    def _refuse_unkept(self) -> None:
        if self._unkept is not None:
            error, self._unkept = self._unkept, None
            raise error

    async def _keep_checkpoint(self, log: AuditLog, signed: Checkpoint) -> None:
        """Waits for the disk, which takes many times as long as a batch. When that fails, so does the next batch."""
        try:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(log.keep, signed)
        except AuditError as error:
            self._unkept = error
        finally:
            self._is_kept.set()
