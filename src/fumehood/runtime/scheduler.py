"""The scheduler: mailboxes, turns, and the tasks in which handlers run.

Handlers run in the runtime's tasks, never in the sender's: only the message passes from sender to handler, and a
handler that cancels its own task affects no other.

An agent handles its queue in order. While it waits for another agent, it also handles requests whose answers it depends
on: those of agents that wait for it, directly or through others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import anyio
from anyio.abc import TaskGroup, TaskStatus

from fumehood.errors import LoopError, MessageError, OverloadedError
from fumehood.runtime.dispatch import Completion, Dispatcher
from fumehood.runtime.envelopes import Envelope
from fumehood.runtime.interface import RuntimeLimits
from fumehood.runtime.mailbox import Delivery, Mailbox, Slots, WorkItem
from fumehood.runtime.registry import Registry


def no_handler(envelope: Envelope, takes: Iterable[str]) -> MessageError:
    return MessageError(
        f"{envelope.to} has no handler for {envelope.payload.name[:80]}; it takes {', '.join(sorted(takes))}"
    )


class WaitGraph:
    """The wait-for graph of the running handlers, in which a cycle is a deadlock.

    A handler waits for the handlers that answer its requests, and, where a request or a publication of its own waits
    for room in a queue, for those that keep that agent busy.
    """

    def __init__(self, registry: Registry, answering: Mapping[str, Delivery]) -> None:
        """`answering` holds the deliveries of direct messages by message id."""
        self._registry, self._answering = registry, answering

    def would_close(self, asker: Delivery | None, envelope: Envelope, recipient: Mailbox) -> bool:
        """Whether the recipient's queue cannot move before the asker is done.

        The chain of the envelope names handlers of other processes, too, through which the asker is waited for.
        """
        if asker is None and not envelope.chain:
            return False
        return recipient.is_saturated and all(
            self._waits_for(delivery, asker, envelope.chain) for delivery in recipient.deliveries
        )

    def _waits_for(self, delivery: Delivery, other: Delivery | None, chain: tuple[str, ...]) -> bool:
        """Directly, or through others."""
        seen: set[Delivery] = set()
        todo = [delivery]
        while todo:
            each = todo.pop()
            if each is other or each.chain_link in chain:
                return True
            if each not in seen:
                seen.add(each)
                todo.extend(self._next(each))
        return False

    def _next(self, delivery: Delivery) -> Iterator[Delivery]:
        for message_id, agent in delivery.asked.items():
            if (answering := self._answering.get(message_id)) is not None:
                yield answering
            elif (mailbox := self._registry.find(agent)) is not None and message_id not in mailbox.reentrant_requests:
                yield from mailbox.deliveries
        for agent in delivery.blocked_on:
            if (mailbox := self._registry.find(agent)) is not None:
                yield from mailbox.deliveries


# Tasks that wait for work instead of ending: starting one costs more than a small handler does.
_MOST_PARKED = 64


@dataclass(slots=True, eq=False)
class _Parked:
    """An idle task that waits for work."""

    turn: anyio.Event = field(default_factory=anyio.Event)
    work: WorkItem | None = None


class Scheduler:
    """Accepts envelopes and runs their handlers."""

    def __init__(self, limits: RuntimeLimits, registry: Registry, handling: Dispatcher) -> None:
        self._limits, self._registry, self._dispatcher = limits, registry, handling
        self._graph = WaitGraph(registry, handling.answering)
        self.slots: Slots[WorkItem] = Slots(limits.handlers, self._launch)
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
        """Cancels every handler at once."""
        if self._group is not None:
            self._group.cancel_scope.cancel()
        self._unfinished = 0
        self._notify_idle()

    async def wait_idle(self) -> None:
        while self._unfinished:
            if self._becomes_idle is None:
                self._becomes_idle = anyio.Event()
            await self._becomes_idle.wait()

    # Acceptance

    def offer(self, envelope: Envelope, sender: Delivery | None) -> bool:
        """Whether it is in the agent's queue now; DeliveryError or MessageError if it cannot be delivered."""
        mailbox = self._admit(envelope)
        if not mailbox.offer(envelope, sender):
            return False
        self._accepted(mailbox)
        return True

    async def deliver(self, envelope: Envelope, sender: Delivery | None) -> None:
        """`sender` is the delivery whose handler waits; None for the application."""
        mailbox = self._admit(envelope)
        would_deadlock = self._graph.would_close(sender, envelope, mailbox)
        if would_deadlock and envelope.topic is None:
            self._insert(mailbox, envelope)
        elif mailbox.offer(envelope, sender):
            self._accepted(mailbox)
        elif would_deadlock:
            raise OverloadedError(
                f"the queue of {envelope.to} is full, and it waits for {envelope.sender}: a deadlock; "
                "publish less, or raise RuntimeLimits.queue_messages"
            )
        else:
            await mailbox.put(envelope, sender)

    def _admit(self, envelope: Envelope) -> Mailbox:
        registration = self._registry.registration(envelope.to.type)
        if envelope.payload.name not in registration.takes:
            raise no_handler(envelope, registration.takes)
        return self._registry.mailbox(envelope.to)

    def _accepted(self, mailbox: Mailbox) -> None:
        self._unfinished += 1
        if mailbox.active < mailbox.registration.at_once:
            mailbox.active += 1
            mailbox.turns.submit(mailbox.next)

    def _insert(self, mailbox: Mailbox, request: Envelope) -> None:
        """Starts a request ahead of the queue, while the running handlers wait."""
        if mailbox.agent is None:
            raise LoopError(
                f"{request.to} is being created and waits for {request.sender}, directly or through others, and "
                "takes no request before it is ready; publish this one instead, or send it after that agent's on_start"
            )
        if not mailbox.registration.is_reentrant:
            raise LoopError(
                f"{request.to} waits for {request.sender}, directly or through others, and takes no request "
                "meanwhile; publish this one instead, or register the agent as reentrant"
            )
        if len(mailbox.reentrant_requests) >= self._limits.reentrant_requests:
            raise OverloadedError(
                f"{request.to} handles {len(mailbox.reentrant_requests)} requests while it waits, the limit "
                "(RuntimeLimits.reentrant_requests)"
            )
        self._unfinished += 1
        mailbox.reentrant_requests.add(request.message_id)
        mailbox.turns.submit(WorkItem(mailbox, request))

    # Tasks

    def _launch(self, work: WorkItem) -> None:
        if self._parked:
            parked = self._parked.pop()
            parked.work = work
            parked.turn.set()
        else:
            assert self._group is not None
            self._group.start_soon(self._work, work)

    async def _work(self, first: WorkItem) -> None:
        work: WorkItem | None = first
        while work is not None:
            work = await self._do_one(work)
            if work is None and len(self._parked) < _MOST_PARKED:
                parked = _Parked()
                self._parked.append(parked)
                await parked.turn.wait()
                work = parked.work

    async def _do_one(self, work: WorkItem) -> WorkItem | None:
        """The next item for this task's slot."""
        mailbox, envelope = work.mailbox, work.request or work.mailbox.take()
        self._unfinished += mailbox.refill()
        completion = await self._dispatcher.handle(mailbox, envelope) if envelope is not None else None
        following = self.slots.swap(mailbox.turns.swap(self._rest_of(work)))
        if completion is not None:
            # The agent goes on while the log is written; only the answer waits for it.
            self._dispatcher.record(completion, partial(self._complete, completion))
        elif envelope is not None:
            self._finished()
        return following

    def _complete(self, completion: Completion, error: str | None) -> None:
        if error is None and self._dispatcher.complete_at_once(completion):
            self._finished()
        elif self._group is not None and not self._group.cancel_scope.cancel_called:
            self._group.start_soon(self._complete_later, completion, error)

    async def _complete_later(self, completion: Completion, error: str | None) -> None:
        await self._dispatcher.complete(completion, error)
        self._finished()

    def _rest_of(self, work: WorkItem) -> WorkItem | None:
        """The same item again, if the queue is not empty."""
        mailbox = work.mailbox
        if work.request is not None:
            mailbox.reentrant_requests.discard(work.request.message_id)
            return None
        if len(mailbox):
            return work
        mailbox.active -= 1
        if mailbox.agent is None and mailbox.is_idle:
            # It could not be created.
            self._registry.drop(mailbox)
        return None

    def _finished(self) -> None:
        self._unfinished = max(0, self._unfinished - 1)
        if self._unfinished == 0:
            self._notify_idle()

    def _notify_idle(self) -> None:
        if self._becomes_idle is not None:
            self._becomes_idle.set()
            self._becomes_idle = None
