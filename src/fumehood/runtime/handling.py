"""What becomes of one message in the hands of its agent: the agent is made if it has to be, handles it, and answers.

Whatever goes wrong becomes an answer that says little, a dead letter that says all, and a record.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import anyio

from fumehood.audit.records import Entry
from fumehood.errors import AgentFailedError, AuditError, DeadlineError, FumehoodError, MessageError, RefusedError
from fumehood.runtime.agent import RuntimeAgent
from fumehood.runtime.cancellation import is_being_cancelled, shed_own_cancellation
from fumehood.runtime.chronicle import Chronicle
from fumehood.runtime.context import Context
from fumehood.runtime.deadletters import Reason
from fumehood.runtime.enquiries import Enquiries
from fumehood.runtime.envelopes import Answer, Envelope, Failure
from fumehood.runtime.events import AgentCreated, MessageDelivered, MessageHandled
from fumehood.runtime.identity import AgentId
from fumehood.runtime.interception import Interceptors, Passage, Stage
from fumehood.runtime.losses import Losses
from fumehood.runtime.messages import Catalogue, Payload
from fumehood.runtime.outgoing import reason_of
from fumehood.runtime.residents import Job, Resident


class LostError(Exception):
    """A message that cannot be handled: what its sender is told, and what those who run the agents are."""

    def __init__(self, reason: Reason, told: FumehoodError, detail: str, error: str | None = None) -> None:
        super().__init__(detail)
        self.reason, self.told, self.detail, self.error = reason, told, detail, error


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What is left when the agent is free again: record that the message was handled, then hand the answer over."""

    job: Job
    payload: Payload | None
    records: tuple[Entry, ...]


class Handling:
    def __init__(
        self,
        catalogue: Catalogue,
        enquiries: Enquiries,
        interceptors: Interceptors,
        chronicle: Chronicle,
        losses: Losses,
        make_context: Callable[[Job, bool], Context],
        carry: Callable[[Answer], Answer],
    ) -> None:
        self._catalogue, self._enquiries, self._interceptors = catalogue, enquiries, interceptors
        self._chronicle, self._losses = chronicle, losses
        self._make_context, self._carry = make_context, carry
        self.saved: dict[AgentId, Mapping[str, object]] = {}
        """States of agents that are not made yet."""
        self.answering: dict[str, Job] = {}
        """Jobs of direct messages, until the answer is handed over."""

    async def handle(self, resident: Resident, envelope: Envelope) -> Conclusion | None:
        """None if there is nothing left to do."""
        job = Job(resident, envelope, anyio.CancelScope(deadline=envelope.deadline))
        if job.is_request:
            if not self._enquiries.is_open(envelope.message_id):
                await self._losses.lose(envelope, Reason.CANCELLED, "its sender did not wait until it was its turn")
                return None
            self.answering[envelope.message_id] = job
        conclusion: Conclusion | None = None
        is_from_queue = envelope.message_id not in resident.questions
        if is_from_queue:
            resident.jobs.append(job)
        try:
            conclusion = await self._handle(job)
        finally:
            if is_from_queue:
                resident.jobs.remove(job)
            if conclusion is None:
                self.answering.pop(envelope.message_id, None)
        return conclusion

    async def _handle(self, job: Job) -> Conclusion | None:
        envelope = job.envelope
        delivered = self._chronicle.stamp(MessageDelivered(), job.ids) if self._chronicle.is_on else None
        started = time.perf_counter()
        try:
            payload = await self._attempt(job)
        except LostError as lost:
            await self._losses.lose(envelope, lost.reason, lost.detail, lost.error)
            self._tell_failure(job, lost.told)
            return None
        except AuditError as error:
            await self._unrecorded(job, error)
            return None
        if delivered is None:
            await self._hand_over(job, payload)
            return None
        return Conclusion(job, payload, (delivered, self._handled(job, payload, time.perf_counter() - started)))

    async def conclude(self, conclusion: Conclusion) -> None:
        try:
            await self._chronicle.write(*conclusion.records)
        except AuditError as error:
            await self._unrecorded(conclusion.job, error)
        else:
            await self._hand_over(conclusion.job, conclusion.payload)
        finally:
            self.answering.pop(conclusion.job.envelope.message_id, None)

    def abandon(self, envelope: Envelope) -> None:
        """Nobody waits for the answer any more: the handler is stopped."""
        job = self.answering.get(envelope.message_id)
        if job is not None:
            job.is_abandoned = True
            job.scope.cancel()

    async def settle(self, answer: Answer, envelope: Envelope) -> None:
        """Hand an answer over to who waits for it; one that is late, or that nobody waits for, is a dead letter."""
        is_late = anyio.current_time() >= envelope.deadline
        if is_late or not self._enquiries.settle(self._carry(answer)):
            reason = Reason.LATE if is_late else Reason.UNASKED
            await self._losses.lose(envelope, reason, f"nobody waits for an answer by {answer.by} to this")

    async def _hand_over(self, job: Job, payload: Payload | None) -> None:
        if job.is_request:
            await self.settle(Answer(job.envelope.message_id, job.resident.id, payload), job.envelope)

    def _handled(self, job: Job, payload: Payload | None, seconds: float) -> Entry:
        body = None if payload is None else self._chronicle.content(payload.data)
        event = MessageHandled(payload.name if payload else None, body, round(seconds * 1_000_000))
        return self._chronicle.stamp(event, job.ids)

    async def _unrecorded(self, job: Job, error: AuditError) -> None:
        await self._losses.lose(job.envelope, Reason.UNRECORDED, str(error))
        self._tell_failure(job, error)

    def _tell_failure(self, job: Job, error: FumehoodError) -> None:
        """Whether anybody still waits or not: it is a dead letter already."""
        if job.is_request:
            answer = Answer(job.envelope.message_id, job.resident.id, failure=Failure.of(error))
            self._enquiries.settle(self._carry(answer))

    async def _attempt(self, job: Job) -> Payload | None:
        """The answer, if there is one; LostError for whatever goes wrong."""
        name, id = job.envelope.payload.name, job.resident.id
        try:
            with job.scope:
                return await self._carry_out(job)
        except (LostError, AuditError):
            raise
        except RefusedError as error:
            raise LostError(Reason.REFUSED, error, str(error)) from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if is_being_cancelled(error):
                raise
            kind = type(error).__name__
            told = AgentFailedError(f"{id} failed with {kind} at {name}; the runtime's dead letters tell more")
            raise LostError(Reason.FAILED, told, f"{kind}: {error}", kind) from error
        finally:
            job.is_over = True
            await shed_own_cancellation()
        if job.is_abandoned:
            told = DeadlineError(f"nobody waits for the answer of {id} to {name} any more")
            raise LostError(Reason.CANCELLED, told, str(told))
        told = DeadlineError(f"{id} has not answered {name} in time")
        raise LostError(Reason.EXPIRED, told, str(told))

    async def _carry_out(self, job: Job) -> Payload | None:
        resident, envelope = job.resident, job.envelope
        agent = resident.agent or await self._make(job)
        try:
            message = self._catalogue.decode(envelope.payload)
        except MessageError as error:
            raise LostError(Reason.INVALID, error, str(error)) from None
        handler = resident.registration.handlers[type(message)]
        result = await handler.call(agent, message, self._make_context(job, False))
        if result is None or envelope.topic is not None:
            return None
        return await self._answer(job, result)

    async def _answer(self, job: Job, result: object) -> Payload:
        resident, envelope = job.resident, job.envelope
        try:
            payload = self._catalogue.encode(result)
        except MessageError as error:
            told = AgentFailedError(f"{resident.id} answered {envelope.payload.name} with what is no valid message")
            raise LostError(Reason.INVALID, told, f"its answer: {error}") from None
        passage = Passage(Stage.ANSWER, envelope.message_id, resident.id, envelope.sender)
        try:
            return await self._interceptors.apply(payload, passage)
        except RefusedError as error:
            raise LostError(reason_of(error), error, f"its answer: {error}") from None

    async def _make(self, job: Job) -> RuntimeAgent:
        resident = job.resident
        async with resident.making:
            if resident.agent is not None:
                return resident.agent
            try:
                agent = await self._made(job)
            except Exception as error:
                kind = type(error).__name__
                told = AgentFailedError(
                    f"{resident.id} could not be made ({kind}); the runtime's dead letters tell more"
                )
                raise LostError(Reason.FAILED, told, f"it could not be made: {kind}: {error}", kind) from error
            await self._chronicle.tell(AgentCreated(), agent=str(resident.id), message=job.envelope.message_id)
            resident.agent = agent
            return agent

    async def _made(self, job: Job) -> RuntimeAgent:
        resident = job.resident
        registration = resident.registration
        made = registration.make(resident.id)
        agent = await made if inspect.isawaitable(made) else made
        if not isinstance(agent, registration.kind):
            raise TypeError(f"`make` returned {type(agent).__name__}, and {registration.kind.__name__} was registered")
        state = self.saved.get(resident.id)
        if state is not None:
            await agent.load_state(state)
        await agent.on_start(self._make_context(job, True))
        self.saved.pop(resident.id, None)
        return agent
