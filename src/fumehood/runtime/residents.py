"""One agent in a runtime: its queue, which has an end, the object that handles what comes out of it, and its turns.

A turn is the right to run a handler of this agent. It is given up while the handler waits for another agent, and has to
be had again before the handler goes on: so of `at_once` turns no more than `at_once` handlers ever run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import anyio

from fumehood.runtime.agent import Handler, RuntimeAgent
from fumehood.runtime.envelopes import Envelope
from fumehood.runtime.grants import Grants
from fumehood.runtime.identity import AgentId
from fumehood.runtime.limits import Limits
from fumehood.runtime.slots import Slots
from fumehood.tools import Tool

Make = Callable[[AgentId], RuntimeAgent | Awaitable[RuntimeAgent]]
# Handlers may fill a queue further than the application may, so that it is the application that waits: agents that
# write to each other would wait for each other.
_RESERVE = 2


@dataclass(slots=True)
class Registration:
    """Of a type of agents."""

    type: str
    handlers: Mapping[type[object], Handler]
    takes: frozenset[str]
    """Names of messages."""
    make: Make
    kind: type[RuntimeAgent]
    tools: tuple[Tool, ...]
    at_once: int
    is_reentrant: bool
    grants: Grants


@dataclass(slots=True, eq=False)
class Job:
    """One message in the hands of one agent."""

    resident: Resident
    envelope: Envelope
    scope: anyio.CancelScope
    is_abandoned: bool = False
    is_over: bool = False
    waits: int = 0
    """For how many answers of others its handler waits just now."""
    asked: dict[str, AgentId] = field(default_factory=dict[str, AgentId])
    """The questions among them, by the id of the message."""
    crowds: list[AgentId] = field(default_factory=list[AgentId])
    """Agents whose full queues it waits at."""

    @property
    def is_request(self) -> bool:
        return self.envelope.topic is None

    @property
    def ids(self) -> dict[str, str]:
        return {"message": self.envelope.message_id, "agent": str(self.resident.id)}


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """For one agent: the next message of its queue, or a question that cannot wait for its place there."""

    resident: Resident
    question: Envelope | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """For room in a queue. `sender` is the handler that waits; the application has none."""

    envelope: Envelope
    sender: Job | None
    is_placed: anyio.Event = field(default_factory=anyio.Event)


class Resident:
    def __init__(self, id: AgentId, registration: Registration, limits: Limits, launch: Callable[[Work], None]) -> None:
        self.id, self.registration = id, registration
        self.agent: RuntimeAgent | None = None
        self.making = anyio.Lock()
        self.active = 0
        """How many messages of its queue are being handled, or have been given a turn."""
        self.jobs: list[Job] = []
        """Those that are being handled."""
        self.questions: set[str] = set()
        """Ids of those that are handled while the jobs wait."""
        self.turns: Slots[Work] = Slots(registration.at_once, launch)
        self.next = Work(self)
        self._limits = limits
        self._queue: deque[Envelope] = deque()
        self._queued_bytes = 0
        self._handlers: deque[_Waiting] = deque()
        self._applications: deque[_Waiting] = deque()

    @property
    def is_idle(self) -> bool:
        return not (self.active or self.questions or self._queue or self._handlers or self._applications)

    @property
    def is_full_of_work(self) -> bool:
        """The next message of the queue has to wait until one of the jobs is done."""
        return len(self.jobs) >= self.registration.at_once

    def __len__(self) -> int:
        return len(self._queue)

    def offer(self, envelope: Envelope, sender: Job | None) -> bool:
        """Whether there is room for it; those who wait for room come first."""
        is_next = not self._handlers and (sender is not None or not self._applications)
        if not is_next or not self._has_room(envelope, sender):
            return False
        self._put(envelope)
        return True

    async def put(self, envelope: Envelope, sender: Job | None) -> None:
        """Waits until `refill` has put it into the queue."""
        waiting = _Waiting(envelope, sender)
        line = self._applications if sender is None else self._handlers
        line.append(waiting)
        if sender is not None:
            sender.crowds.append(self.id)
        try:
            await waiting.is_placed.wait()
        except BaseException:
            if waiting in line:
                line.remove(waiting)
                self._leave(waiting)
            raise

    def take(self) -> Envelope | None:
        if not self._queue:
            return None
        envelope = self._queue.popleft()
        self._queued_bytes -= len(envelope.payload.data)
        return envelope

    def refill(self) -> int:
        """Put what waits into the queue, as far as there is room, handlers' first; how many those were."""
        before = len(self._queue)
        for line in (self._handlers, self._applications):
            while line and self._has_room(line[0].envelope, line[0].sender):
                waiting = line.popleft()
                self._put(waiting.envelope)
                self._leave(waiting)
                waiting.is_placed.set()
            if line:
                break
        return len(self._queue) - before

    def _leave(self, waiting: _Waiting) -> None:
        if waiting.sender is not None:
            waiting.sender.crowds.remove(self.id)

    def _has_room(self, envelope: Envelope, sender: Job | None) -> bool:
        if not self._queue:
            return True
        limits, times = self._limits, 1 if sender is None else _RESERVE
        return (
            len(self._queue) < limits.queue_messages * times
            and self._queued_bytes + len(envelope.payload.data) <= limits.queue_bytes * times
        )

    def _put(self, envelope: Envelope) -> None:
        self._queue.append(envelope)
        self._queued_bytes += len(envelope.payload.data)
