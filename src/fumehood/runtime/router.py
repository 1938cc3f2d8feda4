"""Routing of messages of agents and the application: check grants, encode, intercept, record, then deliver."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import anyio

from fumehood.errors import (
    AuditError,
    DeadlineError,
    DeliveryError,
    FumehoodError,
    LoopError,
    MessageError,
    NotGrantedError,
    RefusedError,
    UsageError,
)
from fumehood.policy import Seconds, read_seconds
from fumehood.runtime.audit import GrantDenied, MessagePublished, MessageSent, RuntimeAudit
from fumehood.runtime.dead_letters import DeadLetterRecorder, Reason, reason_of
from fumehood.runtime.envelopes import Envelope, ReplyEnvelope
from fumehood.runtime.identity import AgentId, TopicId
from fumehood.runtime.interceptors import DroppedError, Interceptors, MessageInfo, Stage
from fumehood.runtime.interface import RuntimeLimits
from fumehood.runtime.mailbox import Delivery
from fumehood.runtime.messages import MessageTypes, Payload
from fumehood.runtime.pending import PendingRequests
from fumehood.runtime.registry import Registry, Subscriptions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Origin:
    """The sender and the message that it is handling. The application has no id and needs no grants."""

    sender: AgentId | None = None
    delivery: Delivery | None = None

    @property
    def cause(self) -> Envelope | None:
        return None if self.delivery is None else self.delivery.envelope


class Transport(Protocol):
    """How envelopes reach mailboxes: in this process, or over the network."""

    async def deliver(self, envelope: Envelope, asker: Delivery | None) -> None:
        """Accepts a request for its recipient's queue, after waiting for room. Raises DeliveryError or MessageError."""
        ...

    async def publish(self, envelopes: list[Envelope], publisher: Delivery | None) -> None:
        """Accepts a publication, one envelope for each recipient; what cannot be delivered is a dead letter.

        Raises DeliveryError if the publisher has to know of it.
        """
        ...

    def abandon(self, envelope: Envelope) -> None:
        """The sender has stopped waiting for the answer."""
        ...


class Router:
    """Sends requests and publications on behalf of an origin."""

    def __init__(
        self,
        limits: RuntimeLimits,
        types: MessageTypes,
        registry: Registry,
        subscriptions: Subscriptions,
        pending: PendingRequests,
        interceptors: Interceptors,
        audit: RuntimeAudit,
        dead_letters: DeadLetterRecorder,
        transport: Transport,
    ) -> None:
        self._limits, self._types, self._registry, self._subscriptions = limits, types, registry, subscriptions
        self._pending, self._interceptors, self._audit = pending, interceptors, audit
        self._dead_letters, self._transport = dead_letters, transport

    async def send(
        self, origin: Origin, message: object, to: AgentId | str, seconds: Seconds | None, reply: type[T]
    ) -> T:
        target = AgentId.parse(to) if isinstance(to, str) else to
        sender = origin.sender
        if sender is not None and not self._registry.grants_of(sender).may_send(sender.key, target):
            await self.deny(origin, "send to", target)
        draft = await self._draft(origin, message, target, None, seconds)
        if self._audit.is_on:
            await self._record_sent(draft)
        answer = await self._answer_to(draft, origin.delivery)
        if answer.failure is not None:
            raise answer.failure.as_error()
        return self._read(answer, reply)

    async def publish(self, origin: Origin, message: object, topic: TopicId | str, seconds: Seconds | None) -> None:
        target = TopicId.parse(topic) if isinstance(topic, str) else topic
        sender = origin.sender
        if sender is not None and not self._registry.grants_of(sender).may_publish(sender.key, target):
            await self.deny(origin, "publish to", target)
        try:
            draft = await self._draft(origin, message, AgentId("unaddressed"), target, seconds)
        except DroppedError:
            return
        await self._subscriptions.catch_up()
        recipients = await self._recipients(target, draft.payload.name, sender)
        if self._audit.is_on:
            await self._record_published(draft, target, recipients)
        await self._transport.publish([replace(draft, to=recipient) for recipient in recipients], origin.delivery)

    async def deny(self, origin: Origin, action: str, target: object) -> None:
        """Records the denial, then raises NotGrantedError."""
        ids = {"agent": str(origin.sender), **({"message": origin.cause.message_id} if origin.cause else {})}
        await self._audit.record(GrantDenied(action, str(target)), **ids)
        raise NotGrantedError(str(origin.sender), action, str(target))

    async def _draft(
        self, origin: Origin, message: object, to: AgentId, topic: TopicId | None, seconds: Seconds | None
    ) -> Envelope:
        """Encodes, intercepts and addresses it. What cannot be sent is a dead letter."""
        message_id, cause, target = f"msg_{secrets.token_hex(8)}", origin.cause, topic or to
        deadline = self._deadline(cause, seconds)
        payload: Payload | None = None
        try:
            payload = self._types.encode(message)
            hops = 0 if cause is None else cause.hops + 1
            if hops > self._limits.hops:
                raise LoopError(
                    f"{payload.name} to {target} would be hop {hops} of one conversation; {self._limits.hops} is "
                    "the limit (RuntimeLimits.hops)"
                )
            stage = Stage.SEND if topic is None else Stage.PUBLISH
            payload = await self._interceptors.apply(payload, MessageInfo(stage, message_id, origin.sender, target))
        except (MessageError, LoopError, RefusedError) as error:
            name = payload.name if payload else type(message).__name__
            detail, reason = _in_full(error), reason_of(error)
            await self._dead_letters.record_unsent(message_id, name, payload, origin.sender, target, reason, detail)
            raise
        return Envelope(
            message_id=message_id,
            payload=payload,
            sender=origin.sender,
            to=to,
            topic=topic,
            cause=cause.message_id if cause else None,
            hops=hops,
            deadline=deadline,
            chain=_chain(origin) if topic is None else (),
        )

    def _deadline(self, cause: Envelope | None, seconds: Seconds | None) -> float:
        """No later than that of the message which led to this one."""
        if isinstance(seconds, str):
            seconds = read_seconds(seconds, "deadline")
        if seconds is not None and not 0 < seconds < float("inf"):
            raise UsageError(f"a deadline must be more than 0 seconds and less than infinity; this is {seconds!r}")
        wanted = anyio.current_time() + (self._limits.deadline_seconds if seconds is None else seconds)
        return wanted if cause is None else min(wanted, cause.deadline)

    async def _answer_to(self, envelope: Envelope, asker: Delivery | None) -> ReplyEnvelope:
        request, answer = self._pending.open(envelope), None
        if asker is not None:
            asker.asked[envelope.message_id] = envelope.to
        try:
            with anyio.CancelScope(deadline=envelope.deadline):
                await self._deliver(envelope, asker)
                answer = await request.wait()
        finally:
            self._pending.close(envelope)
            if asker is not None:
                del asker.asked[envelope.message_id]
            if answer is None:
                self._transport.abandon(envelope)
        if answer is None:
            raise DeadlineError(f"{envelope.to} has not answered {envelope.payload.name} in time")
        return answer

    async def _deliver(self, envelope: Envelope, asker: Delivery | None) -> None:
        try:
            await self._transport.deliver(envelope, asker)
        except (DeliveryError, MessageError) as error:
            await self._dead_letters.record(envelope, reason_of(error), str(error))
            raise

    async def _recipients(self, topic: TopicId, name: str, sender: AgentId | None) -> list[AgentId]:
        """The subscribers that have a grant and a handler for it; never the sender itself."""
        found: list[AgentId] = []
        for agent in self._subscriptions.recipients(topic):
            if agent == sender or not self._registry.takes(agent.type, name):
                continue
            if self._registry.grants_of(agent).may_receive(agent.key, topic):
                found.append(agent)
            else:
                await self._audit.record(GrantDenied("receive from", str(topic)), agent=str(agent))
        return found

    async def _record_sent(self, envelope: Envelope) -> None:
        event = MessageSent(
            type=envelope.payload.name,
            sender=envelope.sender and str(envelope.sender),
            to=str(envelope.to),
            body=self._audit.content(envelope.payload.data),
            cause=envelope.cause,
            hops=envelope.hops,
            deadline_ms=round((envelope.deadline - anyio.current_time()) * 1000),
        )
        await self._record(envelope, event)

    async def _record_published(self, envelope: Envelope, topic: TopicId, recipients: list[AgentId]) -> None:
        event = MessagePublished(
            type=envelope.payload.name,
            sender=envelope.sender and str(envelope.sender),
            topic=str(topic),
            recipients=tuple(map(str, recipients)),
            body=self._audit.content(envelope.payload.data),
            cause=envelope.cause,
            hops=envelope.hops,
        )
        await self._record(envelope, event)

    async def _record(self, envelope: Envelope, event: MessageSent | MessagePublished) -> None:
        try:
            await self._audit.record(event, message=envelope.message_id)
        except AuditError as error:
            await self._dead_letters.record(envelope, Reason.UNRECORDED, str(error))
            raise

    def _read(self, answer: ReplyEnvelope, reply: type[T]) -> T:
        value = None if answer.payload is None else self._types.decode(answer.payload)
        if not isinstance(value, reply):
            raise MessageError(f"{answer.by} answered with {type(value).__name__}, and {reply.__name__} was expected")
        return value


def _chain(origin: Origin) -> tuple[str, ...]:
    """Who waits for the answer to a request: the handler that sends it, and those that wait for that one."""
    if origin.delivery is None:
        return ()
    return (*origin.delivery.envelope.chain, origin.delivery.chain_link)


def _in_full(error: FumehoodError) -> str:
    return f"{error} ({error.__cause__})" if error.__cause__ else str(error)
