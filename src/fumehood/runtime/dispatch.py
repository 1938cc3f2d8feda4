"""Dispatch of one message to its agent: creates the agent if needed, calls its handler, and returns the answer.

Every failure becomes an answer without details, a dead letter with all of them, and a record.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import anyio

from fumehood.audit.records import Entry
from fumehood.errors import (
    AgentFailedError,
    AgentLostError,
    AuditError,
    DeadlineError,
    FumehoodError,
    MessageError,
    RefusedError,
)
from fumehood.runtime.agent import RuntimeAgent
from fumehood.runtime.audit import AgentCreated, MessageHandled, RuntimeAudit, Then
from fumehood.runtime.context import MessageContext
from fumehood.runtime.dead_letters import DeadLetterRecorder, Reason, reason_of
from fumehood.runtime.envelopes import Envelope, ReplyEnvelope, ReplyFailure
from fumehood.runtime.identity import AgentId
from fumehood.runtime.interceptors import Interceptors, MessageInfo, Stage
from fumehood.runtime.mailbox import Delivery, Mailbox
from fumehood.runtime.messages import MessageTypes, Payload


def is_being_cancelled(error: BaseException) -> bool:
    """Whether the runtime is stopping, so that this error must propagate."""
    return isinstance(error, anyio.get_cancelled_exc_class()) and anyio.current_effective_deadline() == float("-inf")


async def clear_own_cancellation() -> None:
    """Clears a cancellation that a handler requested of its own task, which asyncio delivers after it has returned."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        # Another event loop, where a task cannot be cancelled but by a scope around it.
        return
    if task is None or not task.cancelling() or anyio.current_effective_deadline() == float("-inf"):
        return
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    while task.cancelling():
        task.uncancel()


class DispatchError(Exception):
    """A message that cannot be handled: the error for its sender, and the details for the dead letter."""

    def __init__(self, reason: Reason, reply_error: FumehoodError, detail: str, error: str | None = None) -> None:
        super().__init__(detail)
        self.reason, self.reply_error, self.detail, self.error = reason, reply_error, detail, error


@dataclass(frozen=True, slots=True)
class Completion:
    """What remains when the agent is free again: record that the message was handled, then return the answer."""

    delivery: Delivery
    payload: Payload | None
    record: Entry


class Replies(Protocol):
    """Where answers go: to a pending request of this process, or to the process that sent the message."""

    def is_awaited(self, envelope: Envelope) -> bool:
        """Whether the sender still waits for the answer to this request."""
        ...

    def settle(self, answer: ReplyEnvelope) -> bool:
        """Returns the answer; False if no request waits for it."""
        ...

    def finished(self, envelope: Envelope) -> None:
        """A publication was handled, or is a dead letter."""
        ...


class Dispatcher:
    """Handles messages for mailboxes, one call of `handle` for each."""

    def __init__(
        self,
        types: MessageTypes,
        replies: Replies,
        interceptors: Interceptors,
        audit: RuntimeAudit,
        dead_letters: DeadLetterRecorder,
        make_context: Callable[[Delivery, bool], MessageContext],
    ) -> None:
        self._types, self._replies, self._interceptors = types, replies, interceptors
        self._audit, self._dead_letters = audit, dead_letters
        self._make_context = make_context
        self.saved: dict[AgentId, Mapping[str, object]] = {}
        """Loaded states of agents that are not created yet."""
        self.answering: dict[str, Delivery] = {}
        """Deliveries of direct messages by message id, until the answer is returned."""

    async def handle(self, mailbox: Mailbox, envelope: Envelope) -> Completion | None:
        """None if nothing remains to be done."""
        delivery = Delivery(mailbox, envelope, anyio.CancelScope(deadline=envelope.deadline))
        if delivery.is_request:
            if not self._replies.is_awaited(envelope):
                await self._dead_letters.record(
                    envelope, Reason.CANCELLED, "its sender stopped waiting before it was handled"
                )
                return None
            self.answering[envelope.message_id] = delivery
        completion: Completion | None = None
        is_from_queue = envelope.message_id not in mailbox.reentrant_requests
        if is_from_queue:
            mailbox.deliveries.append(delivery)
        try:
            completion = await self._handle(delivery)
        finally:
            if is_from_queue:
                mailbox.deliveries.remove(delivery)
            if completion is None:
                self.answering.pop(envelope.message_id, None)
        return completion

    async def _handle(self, delivery: Delivery) -> Completion | None:
        envelope = delivery.envelope
        started = time.perf_counter()
        try:
            payload = await self._attempt(delivery)
        except DispatchError as lost:
            await self._dead_letters.record(envelope, lost.reason, lost.detail, lost.error)
            self._return_failure(delivery, lost.reply_error)
            return None
        except AuditError as error:
            await self._unrecorded(delivery, error)
            return None
        if not self._audit.is_on:
            await self._return_answer(delivery, payload)
            return None
        return Completion(delivery, payload, self._handled(delivery, payload, time.perf_counter() - started))

    def record(self, completion: Completion, then: Then) -> None:
        """`then` is called when it is recorded that the message was handled, and has to complete it."""
        self._audit.write_then(completion.record, then)

    def complete_at_once(self, completion: Completion) -> bool:
        """Returns the answer of a recorded completion; False if there is something to be recorded about it."""
        delivery, envelope = completion.delivery, completion.delivery.envelope
        if delivery.is_request:
            answer = ReplyEnvelope(envelope.message_id, delivery.mailbox.id, completion.payload)
            if anyio.current_time() >= envelope.deadline or not self._replies.settle(answer):
                return False
        else:
            self._replies.finished(envelope)
        self.answering.pop(envelope.message_id, None)
        return True

    async def complete(self, completion: Completion, error: str | None) -> None:
        try:
            if error is not None:
                await self._unrecorded(completion.delivery, AuditError(error))
            else:
                await self._return_answer(completion.delivery, completion.payload)
        finally:
            self.answering.pop(completion.delivery.envelope.message_id, None)

    def abandon(self, message_id: str) -> None:
        """Cancels the handler of a request whose sender has stopped waiting."""
        delivery = self.answering.get(message_id)
        if delivery is not None:
            delivery.cancel(Reason.CANCELLED)

    async def settle(self, answer: ReplyEnvelope, envelope: Envelope) -> None:
        """Completes the pending request; an answer that is late or has no pending request is a dead letter."""
        is_late = anyio.current_time() >= envelope.deadline
        if is_late or not self._replies.settle(answer):
            reason = Reason.LATE if is_late else Reason.UNASKED
            await self._dead_letters.record(envelope, reason, f"the answer by {answer.by} has no pending request")

    async def _return_answer(self, delivery: Delivery, payload: Payload | None) -> None:
        if delivery.is_request:
            await self.settle(
                ReplyEnvelope(delivery.envelope.message_id, delivery.mailbox.id, payload), delivery.envelope
            )
        else:
            self._replies.finished(delivery.envelope)

    def _handled(self, delivery: Delivery, payload: Payload | None, seconds: float) -> Entry:
        body = None if payload is None else self._audit.content(payload.data)
        event = MessageHandled(payload.name if payload else None, body, round(seconds * 1_000_000))
        return self._audit.stamp(event, delivery.ids)

    async def _unrecorded(self, delivery: Delivery, error: AuditError) -> None:
        await self._dead_letters.record(delivery.envelope, Reason.UNRECORDED, str(error))
        self._return_failure(delivery, error)

    def _return_failure(self, delivery: Delivery, error: FumehoodError) -> None:
        """Ignored if the request is no longer pending: it is a dead letter already."""
        if delivery.is_request:
            answer = ReplyEnvelope(delivery.envelope.message_id, delivery.mailbox.id, failure=ReplyFailure.of(error))
            self._replies.settle(answer)
        else:
            self._replies.finished(delivery.envelope)

    async def _attempt(self, delivery: Delivery) -> Payload | None:
        """The answer, if any; DispatchError for every failure."""
        name, id = delivery.envelope.payload.name, delivery.mailbox.id
        try:
            with delivery.scope:
                return await self._call_handler(delivery)
        except (DispatchError, AuditError):
            raise
        except RefusedError as error:
            raise DispatchError(Reason.REFUSED, error, str(error)) from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if is_being_cancelled(error):
                raise
            kind = type(error).__name__
            reply_error = AgentFailedError(f"{id} failed with {kind} at {name}; see the runtime's dead letters")
            raise DispatchError(Reason.FAILED, reply_error, f"{kind}: {error}", kind) from error
        finally:
            delivery.is_over = True
            await clear_own_cancellation()
        if delivery.cancelled is Reason.CANCELLED:
            reply_error = DeadlineError(f"the sender no longer waits for the answer of {id} to {name}")
            raise DispatchError(Reason.CANCELLED, reply_error, str(reply_error))
        if delivery.cancelled is not None:
            lost = AgentLostError(f"this process is no longer the home of {id}, which was handling {name}")
            raise DispatchError(delivery.cancelled, lost, str(lost))
        reply_error = DeadlineError(f"{id} has not answered {name} in time")
        raise DispatchError(Reason.EXPIRED, reply_error, str(reply_error))

    async def _call_handler(self, delivery: Delivery) -> Payload | None:
        mailbox, envelope = delivery.mailbox, delivery.envelope
        agent = mailbox.agent or await self._make(delivery)
        try:
            message = self._types.decode(envelope.payload)
        except MessageError as error:
            raise DispatchError(Reason.INVALID, error, str(error)) from None
        handler = mailbox.registration.handlers[type(message)]
        result = await handler.call(agent, message, self._make_context(delivery, False))
        if result is None or envelope.topic is not None:
            return None
        return await self._answer(delivery, result)

    async def _answer(self, delivery: Delivery, result: object) -> Payload:
        mailbox, envelope = delivery.mailbox, delivery.envelope
        try:
            payload = self._types.encode(result)
        except MessageError as error:
            reply_error = AgentFailedError(
                f"{mailbox.id} answered {envelope.payload.name} with a message that is not valid"
            )
            raise DispatchError(Reason.INVALID, reply_error, f"its answer: {error}") from None
        info = MessageInfo(Stage.ANSWER, envelope.message_id, mailbox.id, envelope.sender)
        try:
            return await self._interceptors.apply(payload, info)
        except RefusedError as error:
            raise DispatchError(reason_of(error), error, f"its answer: {error}") from None

    async def _make(self, delivery: Delivery) -> RuntimeAgent:
        mailbox = delivery.mailbox
        async with mailbox.making:
            if mailbox.agent is not None:
                return mailbox.agent
            try:
                agent = await self._made(delivery)
            except Exception as error:
                kind = type(error).__name__
                reply_error = AgentFailedError(
                    f"{mailbox.id} could not be created ({kind}); see the runtime's dead letters"
                )
                raise DispatchError(
                    Reason.FAILED, reply_error, f"it could not be created: {kind}: {error}", kind
                ) from error
            await self._audit.record(AgentCreated(), agent=str(mailbox.id), message=delivery.envelope.message_id)
            mailbox.agent = agent
            return agent

    async def _made(self, delivery: Delivery) -> RuntimeAgent:
        mailbox = delivery.mailbox
        registration = mailbox.registration
        made = registration.make(mailbox.id)
        agent = await made if inspect.isawaitable(made) else made
        if not isinstance(agent, registration.kind):
            raise TypeError(f"`make` returned {type(agent).__name__}, and {registration.kind.__name__} was registered")
        state = self.saved.get(mailbox.id)
        if state is not None:
            await agent.load_state(state)
        await agent.on_start(self._make_context(delivery, True))
        self.saved.pop(mailbox.id, None)
        return agent
