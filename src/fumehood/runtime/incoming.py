"""The way into an agent: a queue, a turn, and a task in which its handler runs.

Handlers run in tasks of the runtime's, never in the sender's: nothing of the sender reaches them but the message, and
what a handler does to its own task it does to nobody else.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup, TaskStatus

from fumehood.errors import LoopError, MessageError
from fumehood.runtime.census import Census
from fumehood.runtime.envelopes import Envelope
from fumehood.runtime.handling import Handling
from fumehood.runtime.limits import Limits
from fumehood.runtime.residents import Resident
from fumehood.runtime.slots import Slots

# Tasks that wait for work instead of ending: starting one costs more than a small handler does.
_MOST_PARKED = 64


@dataclass(slots=True, eq=False)
class _Parked:
    turn: anyio.Event = field(default_factory=anyio.Event)
    work: Resident | None = None


class Incoming:
    def __init__(self, limits: Limits, census: Census, handling: Handling) -> None:
        self._census, self._handling = census, handling
        self.slots: Slots[Resident] = Slots(limits.handlers, self._launch)
        self._group: TaskGroup | None = None
        self._parked: list[_Parked] = []
        self._unfinished = 0
        self._becomes_idle: anyio.Event | None = None

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        async with anyio.create_task_group() as group:
            self._group = group
            task_status.started()
            await anyio.sleep_forever()

    def cancel(self) -> None:
        """Every handler, at once; there is nothing left to wait for then."""
        if self._group is not None:
            self._group.cancel_scope.cancel()
        self._unfinished = 0
        self._tell_idle()

    async def wait_idle(self) -> None:
        while self._unfinished:
            if self._becomes_idle is None:
                self._becomes_idle = anyio.Event()
            await self._becomes_idle.wait()

    # Accepting

    def offer(self, envelope: Envelope) -> bool:
        """Whether it is in the agent's queue now; DeliveryError or MessageError if it never can be."""
        resident = self._admit(envelope)
        if not resident.offer(envelope):
            return False
        self._accepted(resident)
        return True

    async def deliver(self, envelope: Envelope) -> None:
        if not self.offer(envelope):
            resident = self._admit(envelope)
            await resident.put(envelope)
            self._accepted(resident)

    def _admit(self, envelope: Envelope) -> Resident:
        registration = self._census.registration(envelope.to.type)
        if envelope.payload.name not in registration.takes:
            raise MessageError(
                f"{envelope.to} has no handler for {envelope.payload.name[:80]}; "
                f"it takes {', '.join(sorted(registration.takes))}"
            )
        if envelope.waiting.count(envelope.to) >= registration.at_once:
            raise LoopError(
                f"{envelope.to} waits for the answer to a message that led to this one, and is not free before it has "
                "it; publish this one instead, or register the agent with a higher `at_once`"
            )
        return self._census.resident(envelope.to)

    def _accepted(self, resident: Resident) -> None:
        self._unfinished += 1
        if resident.active < resident.registration.at_once:
            resident.active += 1
            self.slots.ask(resident)

    # Working

    def _launch(self, resident: Resident) -> None:
        if self._parked:
            parked = self._parked.pop()
            parked.work = resident
            parked.turn.set()
        else:
            assert self._group is not None
            self._group.start_soon(self._work, resident)

    async def _work(self, first: Resident) -> None:
        resident: Resident | None = first
        while resident is not None:
            resident = await self._do_one(resident)
            if resident is None and len(self._parked) < _MOST_PARKED:
                parked = _Parked()
                self._parked.append(parked)
                await parked.turn.wait()
                resident = parked.work

    async def _do_one(self, resident: Resident) -> Resident | None:
        """What to do next, for whom there is a slot."""
        envelope = resident.take()
        conclusion = await self._handling.handle(resident, envelope) if envelope is not None else None
        following = self.slots.swap(self._rest_of(resident))
        if conclusion is not None:
            # The log takes its time. The agent need not wait for it, only the answer must.
            if following is not None:
                self._launch(following)
            await self._handling.conclude(conclusion)
            following = None
        if envelope is not None:
            self._finished()
        return following

    def _rest_of(self, resident: Resident) -> Resident | None:
        """The same agent, if it has more to do."""
        if len(resident):
            return resident
        resident.active -= 1
        if resident.agent is None and resident.is_idle:
            # It could not be made: nothing is left of it.
            self._census.drop(resident)
        return None

    def _finished(self) -> None:
        self._unfinished = max(0, self._unfinished - 1)
        if self._unfinished == 0:
            self._tell_idle()

    def _tell_idle(self) -> None:
        if self._becomes_idle is not None:
            self._becomes_idle.set()
            self._becomes_idle = None
