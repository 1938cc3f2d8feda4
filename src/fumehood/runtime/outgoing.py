"""The way out of an agent, or of the application: judged, written, intercepted, recorded, and only then posted."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import anyio

from fumehood.errors import (
    AuditError,
    DeadlineError,
    DeliveryError,
    FumehoodError,
    LoopError,
    MessageError,
    NotGrantedError,
    OverloadedError,
    RefusedError,
    UsageError,
)
from fumehood.policy import Seconds, read_seconds
from fumehood.runtime.census import Census
from fumehood.runtime.chronicle import Chronicle
from fumehood.runtime.deadletters import Reason
from fumehood.runtime.enquiries import Enquiries
from fumehood.runtime.envelopes import Answer, Envelope
from fumehood.runtime.events import GrantDenied, MessagePublished, MessageSent
from fumehood.runtime.identity import AgentId, TopicId
from fumehood.runtime.interception import DroppedError, Interceptors, Passage, Stage
from fumehood.runtime.limits import Limits
from fumehood.runtime.losses import Losses
from fumehood.runtime.messages import Catalogue, Payload
from fumehood.runtime.residents import Job
from fumehood.runtime.subscriptions import Subscriptions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Origin:
    """Who sends, and because of which message. The application has no name, and needs no grants."""

    sender: AgentId | None = None
    job: Job | None = None

    @property
    def cause(self) -> Envelope | None:
        return None if self.job is None else self.job.envelope


@dataclass(frozen=True, slots=True)
class Post:
    """How envelopes get to the other side; in a distributed runtime, over the network."""

    deliver: Callable[[Envelope, Job | None], Awaitable[None]]
    """Returns when it waits in the agent's queue, which may have to get room first. DeliveryError, MessageError."""
    offer: Callable[[Envelope, Job | None], bool]
    """The same at once; False if there is no room."""
    abandon: Callable[[Envelope], None]
    """Nobody waits for the answer any more."""


class Outgoing:
    def __init__(
        self,
        limits: Limits,
        catalogue: Catalogue,
        census: Census,
        subscriptions: Subscriptions,
        enquiries: Enquiries,
        interceptors: Interceptors,
        chronicle: Chronicle,
        losses: Losses,
        post: Post,
    ) -> None:
        self._limits, self._catalogue, self._census, self._subscriptions = limits, catalogue, census, subscriptions
        self._enquiries, self._interceptors, self._chronicle = enquiries, interceptors, chronicle
        self._losses, self._post = losses, post

    async def ask(
        self, origin: Origin, message: object, to: AgentId | str, seconds: Seconds | None, reply: type[T]
    ) -> T:
        target = AgentId.parse(to) if isinstance(to, str) else to
        sender = origin.sender
        if sender is not None and not self._census.grants_of(sender).may_send(sender.key, target):
            await self.deny(origin, "send to", target)
        draft = await self._draft(origin, message, target, None, seconds)
        if self._chronicle.is_on:
            await self._record_sent(draft)
        answer = await self._answer_to(draft, origin.job)
        if answer.failure is not None:
            raise answer.failure.as_error()
        return self._read(answer, reply)

    async def publish(self, origin: Origin, message: object, topic: TopicId | str, seconds: Seconds | None) -> None:
        target = TopicId.parse(topic) if isinstance(topic, str) else topic
        sender = origin.sender
        if sender is not None and not self._census.grants_of(sender).may_publish(sender.key, target):
            await self.deny(origin, "publish to", target)
        try:
            draft = await self._draft(origin, message, AgentId("nobody"), target, seconds)
        except DroppedError:
            return
        recipients = await self._recipients(target, draft.payload.name, sender)
        if self._chronicle.is_on:
            await self._record_published(draft, target, recipients)
        await self._distribute([replace(draft, to=recipient) for recipient in recipients], origin.job)

    async def deny(self, origin: Origin, action: str, target: object) -> None:
        """Recorded, then raised."""
        ids = {"agent": str(origin.sender), **({"message": origin.cause.message_id} if origin.cause else {})}
        await self._chronicle.tell(GrantDenied(action, str(target)), **ids)
        raise NotGrantedError(str(origin.sender), action, str(target))

    async def _draft(
        self, origin: Origin, message: object, to: AgentId, topic: TopicId | None, seconds: Seconds | None
    ) -> Envelope:
        """Written, intercepted and addressed. What cannot be sent is a dead letter."""
        message_id, cause, target = f"msg_{secrets.token_hex(8)}", origin.cause, topic or to
        deadline = self._deadline(cause, seconds)
        payload: Payload | None = None
        try:
            payload = self._catalogue.encode(message)
            hops = 0 if cause is None else cause.hops + 1
            if hops > self._limits.hops:
                raise LoopError(
                    f"{payload.name} to {target} would be hop {hops} of one conversation, and {self._limits.hops} are "
                    "the limit (Limits.hops)"
                )
            stage = Stage.SEND if topic is None else Stage.PUBLISH
            payload = await self._interceptors.apply(payload, Passage(stage, message_id, origin.sender, target))
        except (MessageError, LoopError, RefusedError) as error:
            name = payload.name if payload else type(message).__name__
            detail, reason = _in_full(error), reason_of(error)
            await self._losses.bury(message_id, name, payload, origin.sender, target, reason, detail)
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
        )

    def _deadline(self, cause: Envelope | None, seconds: Seconds | None) -> float:
        """No later than that of the message which led to this one."""
        if isinstance(seconds, str):
            seconds = read_seconds(seconds, "deadline")
        if seconds is not None and not 0 < seconds < float("inf"):
            raise UsageError(f"a deadline is more than 0 seconds away and less than infinity; this is {seconds!r}")
        wanted = anyio.current_time() + (self._limits.deadline_seconds if seconds is None else seconds)
        return wanted if cause is None else min(wanted, cause.deadline)

    async def _answer_to(self, envelope: Envelope, asker: Job | None) -> Answer:
        enquiry, answer = self._enquiries.open(envelope), None
        if asker is not None:
            asker.asked[envelope.message_id] = envelope.to
        try:
            with anyio.CancelScope(deadline=envelope.deadline):
                await self._deliver(envelope, asker)
                answer = await enquiry.wait()
        finally:
            self._enquiries.close(envelope)
            if asker is not None:
                del asker.asked[envelope.message_id]
            if answer is None:
                self._post.abandon(envelope)
        if answer is None:
            raise DeadlineError(f"{envelope.to} has not answered {envelope.payload.name} in time")
        return answer

    async def _deliver(self, envelope: Envelope, asker: Job | None) -> None:
        try:
            await self._post.deliver(envelope, asker)
        except (DeliveryError, MessageError) as error:
            await self._losses.lose(envelope, reason_of(error), str(error))
            raise

    async def _distribute(self, envelopes: list[Envelope], publisher: Job | None) -> None:
        """Those whose queue is full keep nobody else waiting, only the sender, and it not for ever.

        OverloadedError if it would be for ever; the others have got theirs by then.
        """
        waiting = [envelope for envelope in envelopes if not await self._offer(envelope, publisher)]
        full: list[OverloadedError] = []
        if waiting:
            async with anyio.create_task_group() as group:
                for envelope in waiting:
                    group.start_soon(self._wait_for_room, envelope, publisher, full)
        if full:
            raise full[0]

    async def _wait_for_room(self, envelope: Envelope, publisher: Job | None, full: list[OverloadedError]) -> None:
        with anyio.CancelScope(deadline=envelope.deadline) as scope:
            try:
                await self._post.deliver(envelope, publisher)
            except (DeliveryError, MessageError) as error:
                full += [error] if isinstance(error, OverloadedError) else []
                await self._losses.lose(envelope, reason_of(error), str(error))
        if scope.cancelled_caught:
            await self._losses.lose(envelope, Reason.OVERLOADED, f"the queue of {envelope.to} stayed full")

    async def _offer(self, envelope: Envelope, publisher: Job | None) -> bool:
        """Whether it is settled: accepted, or lost."""
        try:
            return self._post.offer(envelope, publisher)
        except (DeliveryError, MessageError) as error:
            await self._losses.lose(envelope, reason_of(error), str(error))
            return True

    async def _recipients(self, topic: TopicId, name: str, sender: AgentId | None) -> list[AgentId]:
        """Who is subscribed, may be, and has a handler for it; never the sender itself."""
        found: list[AgentId] = []
        for agent in self._subscriptions.recipients(topic):
            if agent == sender or not self._census.takes(agent.type, name):
                continue
            if self._census.grants_of(agent).may_receive(agent.key, topic):
                found.append(agent)
            else:
                await self._chronicle.tell(GrantDenied("receive from", str(topic)), agent=str(agent))
        return found

    async def _record_sent(self, envelope: Envelope) -> None:
        event = MessageSent(
            type=envelope.payload.name,
            sender=envelope.sender and str(envelope.sender),
            to=str(envelope.to),
            body=self._chronicle.content(envelope.payload.data),
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
            body=self._chronicle.content(envelope.payload.data),
            cause=envelope.cause,
            hops=envelope.hops,
        )
        await self._record(envelope, event)

    async def _record(self, envelope: Envelope, event: MessageSent | MessagePublished) -> None:
        try:
            await self._chronicle.tell(event, message=envelope.message_id)
        except AuditError as error:
            await self._losses.lose(envelope, Reason.UNRECORDED, str(error))
            raise

    def _read(self, answer: Answer, reply: type[T]) -> T:
        value = None if answer.payload is None else self._catalogue.decode(answer.payload)
        if not isinstance(value, reply):
            raise MessageError(f"{answer.by} answered with {type(value).__name__}, and {reply.__name__} was expected")
        return value


def reason_of(error: FumehoodError) -> Reason:
    match error:
        case DroppedError():
            return Reason.DROPPED
        case RefusedError():
            return Reason.REFUSED
        case LoopError():
            return Reason.LOOPING
        case OverloadedError():
            return Reason.OVERLOADED
        case MessageError():
            return Reason.INVALID
        case _:
            return Reason.UNHANDLED


def _in_full(error: FumehoodError) -> str:
    return f"{error} ({error.__cause__})" if error.__cause__ else str(error)
