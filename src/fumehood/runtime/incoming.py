"""The way into an agent: a queue, a turn, and a task in which its handler runs.

Handlers run in tasks of the runtime's, never in the sender's: nothing of the sender reaches them but the message, and
what a handler does to its own task it does to nobody else.

An agent handles what is in its queue in order. While it waits for another agent, it also handles questions without
whose answers it would wait for ever: those of agents that wait for it, directly or through others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup, TaskStatus

from fumehood.errors import LoopError, MessageError, OverloadedError
from fumehood.runtime.census import Census
from fumehood.runtime.envelopes import Envelope
from fumehood.runtime.handling import Handling
from fumehood.runtime.limits import Limits
from fumehood.runtime.residents import Job, Resident, Work
from fumehood.runtime.slots import Slots
from fumehood.runtime.waiting import WaitGraph

# Tasks that wait for work instead of ending: starting one costs more than a small handler does.
_MOST_PARKED = 64


@dataclass(slots=True, eq=False)
class _Parked:
    turn: anyio.Event = field(default_factory=anyio.Event)
    work: Work | None = None


class Incoming:
    def __init__(self, limits: Limits, census: Census, handling: Handling) -> None:
        self._limits, self._census, self._handling = limits, census, handling
        self._graph = WaitGraph(census, handling.answering)
        self.slots: Slots[Work] = Slots(limits.handlers, self._launch)
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

    def offer(self, envelope: Envelope, sender: Job | None) -> bool:
        """Whether it is in the agent's queue now; DeliveryError or MessageError if it never can be."""
        resident = self._admit(envelope)
        if not resident.offer(envelope, sender):
            return False
        self._accepted(resident)
        return True

    async def deliver(self, envelope: Envelope, sender: Job | None) -> None:
        """`sender` is the handler that waits for this, which the application does not have."""
        resident = self._admit(envelope)
        would_deadlock = sender is not None and self._graph.would_close(sender, resident)
        if would_deadlock and envelope.topic is None:
            self._insert(resident, envelope)
        elif resident.offer(envelope, sender):
            self._accepted(resident)
        elif would_deadlock:
            raise OverloadedError(
                f"the queue of {envelope.to} is full, and it waits for {envelope.sender} itself: neither could go on; "
                "publish less, or raise Limits.queue_messages"
            )
        else:
            await resident.put(envelope, sender)

    def _admit(self, envelope: Envelope) -> Resident:
        registration = self._census.registration(envelope.to.type)
        if envelope.payload.name not in registration.takes:
            raise MessageError(
                f"{envelope.to} has no handler for {envelope.payload.name[:80]}; "
                f"it takes {', '.join(sorted(registration.takes))}"
            )
        return self._census.resident(envelope.to)

    def _accepted(self, resident: Resident) -> None:
        self._unfinished += 1
        if resident.active < resident.registration.at_once:
            resident.active += 1
            resident.turns.ask(resident.next)

    def _insert(self, resident: Resident, question: Envelope) -> None:
        """Before everything in the queue, and while the handlers under way wait."""
        if resident.agent is None:
            raise LoopError(
                f"{question.to} is being created and waits for {question.sender}, directly or through others, and "
                "takes no question before it is ready; publish this one instead, or send it after that agent's on_start"
            )
        if not resident.registration.is_reentrant:
            raise LoopError(
                f"{question.to} waits for {question.sender}, directly or through others, and takes no question "
                "meanwhile; publish this one instead, or register the agent as reentrant"
            )
        if len(resident.questions) >= self._limits.questions:
            raise OverloadedError(
                f"{question.to} handles {len(resident.questions)} questions while it waits, and that is the limit "
                "(Limits.questions)"
            )
        self._unfinished += 1
        resident.questions.add(question.message_id)
        resident.turns.ask(Work(resident, question))

    # Working

    def _launch(self, work: Work) -> None:
        if self._parked:
            parked = self._parked.pop()
            parked.work = work
            parked.turn.set()
        else:
            assert self._group is not None
            self._group.start_soon(self._work, work)

    async def _work(self, first: Work) -> None:
        work: Work | None = first
        while work is not None:
            work = await self._do_one(work)
            if work is None and len(self._parked) < _MOST_PARKED:
                parked = _Parked()
                self._parked.append(parked)
                await parked.turn.wait()
                work = parked.work

    async def _do_one(self, work: Work) -> Work | None:
        """What to do next, for which there is a slot."""
        resident, envelope = work.resident, work.question or work.resident.take()
        self._unfinished += resident.refill()
        conclusion = await self._handling.handle(resident, envelope) if envelope is not None else None
        following = self.slots.swap(resident.turns.swap(self._rest_of(work)))
        if conclusion is not None:
            # The log takes its time. The agent need not wait for it, only the answer must.
            if following is not None:
                self._launch(following)
            await self._handling.conclude(conclusion)
            following = None
        if envelope is not None:
            self._finished()
        return following

    def _rest_of(self, work: Work) -> Work | None:
        """More of the queue, if there is more."""
        resident = work.resident
        if work.question is not None:
            resident.questions.discard(work.question.message_id)
            return None
        if len(resident):
            return work
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
