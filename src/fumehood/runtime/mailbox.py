"""The mailbox of one agent: a bounded queue, the agent object that handles what is in it, and its turns.

A turn is the right to run a handler of this agent. A handler releases it while it waits for another agent and takes it
again before it goes on: so never more than `at_once` handlers of one agent run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio

from fumehood.runtime.agent import Registration, RuntimeAgent
from fumehood.runtime.dead_letters import Reason
from fumehood.runtime.envelopes import Envelope, chain_link
from fumehood.runtime.identity import AgentId
from fumehood.runtime.interface import RuntimeLimits

T = TypeVar("T")


class Slots(Generic[T]):
    """A fair semaphore that starts work: `launch` is called with each item that gets a slot.

    A handler that waits for another agent's answer releases its slot meanwhile: otherwise all slots could be held by
    handlers that wait for each other.
    """

    def __init__(self, count: int, launch: Callable[[T], None]) -> None:
        self._free = count
        self._launch = launch
        self._waiting: deque[T] = deque()
        self._returning: deque[anyio.Event] = deque()
        self._is_paused = False

    def submit(self, work: T) -> None:
        """Launches it now, or when a slot is free."""
        if self._free > 0 and not self._is_paused:
            self._free -= 1
            self._launch(work)
        else:
            self._waiting.append(work)

    def swap(self, more: T | None) -> T | None:
        """The next item for the slot of a holder that has finished one, or None if the slot is released.

        `more` goes to the end of the queue, if there is one.
        """
        if self._returning or self._waiting or self._is_paused:
            if more is not None:
                self._waiting.append(more)
            if self._returning or self._is_paused:
                self.release()
                return None
            return self._waiting.popleft()
        if more is None:
            self._free += 1
        return more

    def release(self) -> None:
        if self._returning:
            self._returning.popleft().set()
        elif self._waiting and not self._is_paused:
            self._launch(self._waiting.popleft())
        else:
            self._free += 1

    async def reacquire(self) -> None:
        """Takes a slot again after `release`; if this is cancelled, the slot is taken nevertheless."""
        if self._free > 0:
            self._free -= 1
            return
        turn = anyio.Event()
        self._returning.append(turn)
        try:
            await turn.wait()
        except BaseException:
            if not turn.is_set():
                self._returning.remove(turn)
                self._free -= 1
            raise

    def pause(self) -> None:
        """Launches nothing until `resume`."""
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        while self._free > 0 and self._waiting:
            self._free -= 1
            self._launch(self._waiting.popleft())


# Handlers may fill a queue further than the application may, so that it is the application that waits: agents that
# write to each other would otherwise deadlock.
_RESERVE = 2


@dataclass(slots=True, eq=False)
class Delivery:
    """One message that one agent is handling."""

    mailbox: Mailbox
    envelope: Envelope
    scope: anyio.CancelScope
    cancelled: Reason | None = None
    """Why its handler was cancelled before the deadline."""
    is_over: bool = False
    waits: int = 0
    """How many answers its handler is waiting for."""
    asked: dict[str, AgentId] = field(default_factory=dict[str, AgentId])
    """The requests among them: recipient by message id."""
    blocked_on: list[AgentId] = field(default_factory=list[AgentId])
    """Agents whose full queues it waits for."""

    def cancel(self, reason: Reason) -> None:
        self.cancelled = reason
        self.scope.cancel()

    @property
    def is_request(self) -> bool:
        return self.envelope.topic is None

    @property
    def chain_link(self) -> str:
        return chain_link(self.envelope.message_id, self.mailbox.id)

    @property
    def ids(self) -> dict[str, str]:
        return {"message": self.envelope.message_id, "agent": str(self.mailbox.id)}


@dataclass(frozen=True, slots=True, eq=False)
class WorkItem:
    """The next message of a mailbox, or a request that cannot wait in its queue."""

    mailbox: Mailbox
    request: Envelope | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A sender that waits for room in the queue; None is the application."""

    envelope: Envelope
    sender: Delivery | None
    is_placed: anyio.Event = field(default_factory=anyio.Event)


class Mailbox:
    """The queue, the object and the running handlers of one agent."""

    def __init__(
        self, id: AgentId, registration: Registration, limits: RuntimeLimits, launch: Callable[[WorkItem], None]
    ) -> None:
        self.id, self.registration = id, registration
        self.agent: RuntimeAgent | None = None
        self.making = anyio.Lock()
        self.active = 0
        """How many messages of its queue are being handled or have a turn."""
        self.deliveries: list[Delivery] = []
        """The messages of its queue that are being handled."""
        self.reentrant_requests: set[str] = set()
        """Ids of requests that are handled while the deliveries wait."""
        self.turns: Slots[WorkItem] = Slots(registration.at_once, launch)
        self.next = WorkItem(self)
        self._limits = limits
        self._queue: deque[Envelope] = deque()
        self._queued_bytes = 0
        self._handlers: deque[_Waiting] = deque()
        self._applications: deque[_Waiting] = deque()

    @property
    def is_idle(self) -> bool:
        return not (self.active or self.reentrant_requests or self._queue or self._handlers or self._applications)

    @property
    def is_saturated(self) -> bool:
        """The next message of the queue has to wait until a delivery ends."""
        return len(self.deliveries) >= self.registration.at_once

    def __len__(self) -> int:
        return len(self._queue)

    def offer(self, envelope: Envelope, sender: Delivery | None) -> bool:
        """Adds it if there is room and no sender is waiting for room; returns whether it did."""
        is_next = not self._handlers and (sender is not None or not self._applications)
        if not is_next or not self._has_room(envelope, sender):
            return False
        self._put(envelope)
        return True

    async def put(self, envelope: Envelope, sender: Delivery | None) -> None:
        """Waits until `refill` has put it into the queue."""
        waiting = _Waiting(envelope, sender)
        line = self._applications if sender is None else self._handlers
        line.append(waiting)
        if sender is not None:
            sender.blocked_on.append(self.id)
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
        """Moves waiting messages into the queue while there is room, those of handlers first; returns their number."""
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
            waiting.sender.blocked_on.remove(self.id)

    def _has_room(self, envelope: Envelope, sender: Delivery | None) -> bool:
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
