"""An agent's line into the local runtime, for one message. Who speaks is the job's agent, whatever a context says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

import anyio

from fumehood.audit import Trail
from fumehood.errors import UsageError
from fumehood.policy import Policy, Seconds
from fumehood.runtime.census import Census
from fumehood.runtime.chronicle import Chronicle
from fumehood.runtime.events import AgentSubscribed
from fumehood.runtime.grants import digest_of
from fumehood.runtime.identity import AgentId, TopicId
from fumehood.runtime.outgoing import Origin, Outgoing
from fumehood.runtime.patterns import Pattern
from fumehood.runtime.residents import Job, Work
from fumehood.runtime.slots import Slots
from fumehood.runtime.subscriptions import Subscription, Subscriptions
from fumehood.runtime.toolboxes import GrantedRoom, MakeGate, open_room

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Exchange:
    """The parts of a runtime that lines lead to."""

    outgoing: Outgoing
    slots: Slots[Work]
    census: Census
    subscriptions: Subscriptions
    chronicle: Chronicle
    make_gate: MakeGate | None


class AgentLine:
    __slots__ = ("_exchange", "_job", "_origin")

    def __init__(self, exchange: Exchange, job: Job) -> None:
        self._exchange, self._job = exchange, job
        self._origin = Origin(job.resident.id, job)

    async def send(self, message: object, to: AgentId | str, deadline: Seconds | None, reply: type[T]) -> T:
        self._check_time()
        async with self._waiting():
            return await self._exchange.outgoing.ask(self._origin, message, to, deadline, reply)

    async def publish(self, message: object, topic: TopicId | str, deadline: Seconds | None) -> None:
        self._check_time()
        async with self._waiting():
            await self._exchange.outgoing.publish(self._origin, message, topic, deadline)

    async def subscribe(self, topic: str) -> None:
        self._check_time()
        pattern, id = Pattern.parse(topic), self._job.resident.id
        if not self._exchange.census.grants_of(id).may_subscribe(pattern):
            await self._exchange.outgoing.deny(self._origin, "subscribe to", topic)
        await self._exchange.chronicle.tell(AgentSubscribed(topic), agent=str(id))
        self._exchange.subscriptions.add(Subscription(pattern, id.type, id.key))

    async def unsubscribe(self, topic: str) -> None:
        self._check_time()
        id = self._job.resident.id
        self._exchange.subscriptions.remove(Subscription(Pattern.parse(topic), id.type, id.key))

    def open_room(
        self, policy: Policy, session: bool, gated: bool, ids: Mapping[str, str]
    ) -> AbstractAsyncContextManager[GrantedRoom]:
        self._check_time()
        return self._granted_room(policy, session, gated, ids)

    @asynccontextmanager
    async def _granted_room(
        self, policy: Policy, session: bool, gated: bool, ids: Mapping[str, str]
    ) -> AsyncIterator[GrantedRoom]:
        id, exchange = self._job.resident.id, self._exchange
        if not exchange.census.grants_of(id).may_open(policy):
            await exchange.outgoing.deny(self._origin, "open a sandbox under the policy", digest_of(policy))
        own = self.trail()
        async with open_room(
            id,
            lambda: exchange.census.grants_of(id),
            policy,
            session=session,
            gated=gated,
            tools=self._job.resident.registration.tools,
            make_gate=exchange.make_gate,
            trail=replace(own, ids={**ids, **own.ids}),
        ) as room:
            yield room

    def trail(self) -> Trail:
        """Who acts, and because of what, is the runtime's to say: whatever else is added comes after."""
        return self._exchange.chronicle.trail.within(**self._job.ids)

    def remaining(self) -> float:
        return max(0.0, self._job.envelope.deadline - anyio.current_time())

    def _check_time(self) -> None:
        """What an agent does, it does because of a message: so that it ends, and is known where it came from."""
        if self._job.is_over:
            raise UsageError(
                f"the message {self._job.envelope.message_id} is handled, and its context with it is over; "
                "use the context of the message that is being handled"
            )

    @asynccontextmanager
    async def _waiting(self) -> AsyncIterator[None]:
        """The turn and the slot are for others meanwhile. A handler may wait for several at once."""
        self._job.waits += 1
        if self._job.waits == 1:
            self._job.resident.turns.release()
            self._exchange.slots.release()
        try:
            yield
        finally:
            self._job.waits -= 1
            if self._job.waits == 0:
                await self._go_on()

    async def _go_on(self) -> None:
        """The turn first, as whoever begins has it: otherwise one could hold what the other waits for."""
        try:
            await self._job.resident.turns.take_back()
        finally:
            await self._exchange.slots.take_back()
