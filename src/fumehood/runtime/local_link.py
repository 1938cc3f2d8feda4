"""The link of one agent into the local runtime, for one message. The sender is always the delivery's agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

import anyio

from fumehood.audit import Trail
from fumehood.errors import UsageError
from fumehood.policy import Policy, Seconds
from fumehood.runtime.audit import AgentSubscribed, RuntimeAudit
from fumehood.runtime.grants import digest_of
from fumehood.runtime.identity import AgentId, Pattern, TopicId
from fumehood.runtime.mailbox import Delivery, Slots, WorkItem
from fumehood.runtime.registry import Registry, Subscription, Subscriptions
from fumehood.runtime.router import Origin, Router
from fumehood.runtime.toolbox import GrantedSandbox, MakeGate, open_sandbox
from fumehood.sandbox.interface import Opener

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RuntimeParts:
    """The parts of a runtime that links use."""

    router: Router
    slots: Slots[WorkItem]
    registry: Registry
    subscriptions: Subscriptions
    audit: RuntimeAudit
    make_gate: MakeGate | None
    sandboxes: Opener | None


class LocalLink:
    """Implements `RuntimeLink` for the agent of one delivery."""

    __slots__ = ("_job", "_origin", "_parts")

    def __init__(self, parts: RuntimeParts, delivery: Delivery) -> None:
        self._parts, self._job = parts, delivery
        self._origin = Origin(delivery.mailbox.id, delivery)

    async def send(self, message: object, to: AgentId | str, deadline: Seconds | None, reply: type[T]) -> T:
        self._check_not_over()
        async with self._waiting():
            return await self._parts.router.send(self._origin, message, to, deadline, reply)

    async def publish(self, message: object, topic: TopicId | str, deadline: Seconds | None) -> None:
        self._check_not_over()
        async with self._waiting():
            await self._parts.router.publish(self._origin, message, topic, deadline)

    async def subscribe(self, topic: str) -> None:
        self._check_not_over()
        pattern, id = Pattern.parse(topic), self._job.mailbox.id
        if not self._parts.registry.grants_of(id).may_subscribe(pattern):
            await self._parts.router.deny(self._origin, "subscribe to", topic)
        await self._parts.audit.record(AgentSubscribed(topic), agent=str(id))
        await self._parts.subscriptions.add(Subscription(pattern, id.type, id.key))

    async def unsubscribe(self, topic: str) -> None:
        self._check_not_over()
        id = self._job.mailbox.id
        await self._parts.subscriptions.remove(Subscription(Pattern.parse(topic), id.type, id.key))

    def open_sandbox(
        self, policy: Policy, session: bool, gated: bool, ids: Mapping[str, str]
    ) -> AbstractAsyncContextManager[GrantedSandbox]:
        self._check_not_over()
        return self._granted_sandbox(policy, session, gated, ids)

    @asynccontextmanager
    async def _granted_sandbox(
        self, policy: Policy, session: bool, gated: bool, ids: Mapping[str, str]
    ) -> AsyncIterator[GrantedSandbox]:
        id, parts = self._job.mailbox.id, self._parts
        if not parts.registry.grants_of(id).may_open(policy):
            await parts.router.deny(self._origin, "open a sandbox under the policy", digest_of(policy))
        # Anew from its keys: cells and reports are found by the digest that it carries, which its maker could have set.
        policy = policy.model_copy()
        own = self.trail()
        async with open_sandbox(
            id,
            lambda: parts.registry.grants_of(id),
            policy,
            session=session,
            gated=gated,
            tools=self._job.mailbox.registration.tools,
            make_gate=parts.make_gate,
            trail=replace(own, ids={**ids, **own.ids}),
            sandboxes=parts.sandboxes,
        ) as sandbox:
            yield sandbox

    def trail(self) -> Trail:
        """The ids of agent and message are set by the runtime and cannot be overridden."""
        return self._parts.audit.trail.within(**self._job.ids)

    def remaining(self) -> float:
        return max(0.0, self._job.envelope.deadline - anyio.current_time())

    def _check_not_over(self) -> None:
        """A context is bound to its message, so that every action has a deadline and a cause."""
        if self._job.is_over:
            raise UsageError(
                f"the message {self._job.envelope.message_id} is handled, and its context has ended; "
                "use the context of the message that is being handled"
            )

    @asynccontextmanager
    async def _waiting(self) -> AsyncIterator[None]:
        """Releases the turn and the slot meanwhile. A handler may wait for several answers at once."""
        self._job.waits += 1
        if self._job.waits == 1:
            self._job.mailbox.turns.release()
            self._parts.slots.release()
        try:
            yield
        finally:
            self._job.waits -= 1
            if self._job.waits == 0:
                await self._reacquire()

    async def _reacquire(self) -> None:
        """Turn before slot, the same order as at the start of a handler: otherwise two could deadlock."""
        try:
            await self._job.mailbox.turns.reacquire()
        finally:
            await self._parts.slots.reacquire()
