"""One agent in a runtime: its queue, which has an end, and the object that handles what comes out of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import anyio

from fumehood.runtime.agent import Handler, RuntimeAgent
from fumehood.runtime.envelopes import Envelope
from fumehood.runtime.grants import Grants
from fumehood.runtime.identity import AgentId
from fumehood.runtime.limits import Limits
from fumehood.tools import Tool

Make = Callable[[AgentId], RuntimeAgent | Awaitable[RuntimeAgent]]


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
    grants: Grants


class Resident:
    def __init__(self, id: AgentId, registration: Registration, limits: Limits) -> None:
        self.id, self.registration = id, registration
        self.agent: RuntimeAgent | None = None
        self.making = anyio.Lock()
        self.active = 0
        """How many of its messages are being handled, or have been given a turn."""
        self._limits = limits
        self._queue: deque[Envelope] = deque()
        self._queued_bytes = 0
        self._senders: deque[anyio.Event] = deque()

    @property
    def is_idle(self) -> bool:
        return not self.active and not self._queue and not self._senders

    def __len__(self) -> int:
        return len(self._queue)

    def offer(self, envelope: Envelope) -> bool:
        """Whether there is room for it; those who wait for room come first."""
        if self._senders or not self._has_room(envelope):
            return False
        self._put(envelope)
        return True

    async def put(self, envelope: Envelope) -> None:
        """Waits for room."""
        while not self._has_room(envelope):
            turn = anyio.Event()
            self._senders.append(turn)
            try:
                await turn.wait()
            except BaseException:
                if turn.is_set():
                    self._wake_sender()
                else:
                    self._senders.remove(turn)
                raise
        self._put(envelope)

    def take(self) -> Envelope | None:
        if not self._queue:
            return None
        envelope = self._queue.popleft()
        self._queued_bytes -= len(envelope.payload.data)
        self._wake_sender()
        return envelope

    def _has_room(self, envelope: Envelope) -> bool:
        limits = self._limits
        if not self._queue:
            return True
        return (
            len(self._queue) < limits.queue_messages
            and self._queued_bytes + len(envelope.payload.data) <= limits.queue_bytes
        )

    def _put(self, envelope: Envelope) -> None:
        self._queue.append(envelope)
        self._queued_bytes += len(envelope.payload.data)

    def _wake_sender(self) -> None:
        if self._senders:
            self._senders.popleft().set()
