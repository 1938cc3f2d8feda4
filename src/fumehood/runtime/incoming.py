"""The way into an agent: a queue, a turn, the handler, and its answer.

Handlers run in tasks of the runtime's, never in the sender's: nothing of the sender reaches them but the message, and
what a handler does to its own task it does to nobody else.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup, TaskStatus

from fumehood.errors import (
    AgentFailedError,
    AuditError,
    DeadlineError,
    FumehoodError,
    LoopError,
    MessageError,
    RefusedError,
)
from fumehood.runtime.agent import RuntimeAgent
from fumehood.runtime.cancellation import is_being_cancelled, shed_own_cancellation
from fumehood.runtime.census import Census
from fumehood.runtime.chronicle import Chronicle
from fumehood.runtime.context import Context
from fumehood.runtime.deadletters import Reason
from fumehood.runtime.enquiries import Enquiries
from fumehood.runtime.envelopes import Answer, Envelope, Failure
from fumehood.runtime.events import AgentCreated, MessageDelivered, MessageHandled
from fumehood.runtime.identity import AgentId
from fumehood.runtime.interception import Interceptors, Passage, Stage
from fumehood.runtime.limits import Limits
from fumehood.runtime.losses import Losses
from fumehood.runtime.messages import Catalogue, Payload
from fumehood.runtime.outgoing import reason_of
from fumehood.runtime.residents import Resident
from fumehood.runtime.slots import Slots

# Tasks that wait for work instead of ending: starting one costs more than a small handler does.
_MOST_PARKED = 64


class LostError(Exception):
    """A message that cannot be handled: what its sender is told, and what those who run the agents are."""

    def __init__(self, reason: Reason, told: FumehoodError, detail: str, error: str | None = None) -> None:
        super().__init__(detail)
        self.reason, self.told, self.detail, self.error = reason, told, detail, error


@dataclass(slots=True, eq=False)
class Job:
    """One message in the hands of one agent."""

    resident: Resident
    envelope: Envelope
    scope: anyio.CancelScope
    is_abandoned: bool = False
    is_over: bool = False
    waits: int = 0
    """For how many answers of others its handler waits just now."""


@dataclass(slots=True, eq=False)
class _Parked:
    turn: anyio.Event = field(default_factory=anyio.Event)
    work: Resident | None = None


class Incoming:
    def __init__(
        self,
        limits: Limits,
        catalogue: Catalogue,
        census: Census,
        enquiries: Enquiries,
        interceptors: Interceptors,
        chronicle: Chronicle,
        losses: Losses,
        make_context: Callable[[Job, bool], Context],
        carry: Callable[[Answer], Answer],
    ) -> None:
        self._catalogue, self._census, self._enquiries = catalogue, census, enquiries
        self._interceptors, self._chronicle, self._losses = interceptors, chronicle, losses
        self._make_context, self._carry = make_context, carry
        self.slots: Slots[Resident] = Slots(limits.handlers, self._launch)
        self.saved: dict[AgentId, Mapping[str, object]] = {}
        """States of agents that are not made yet."""
        self._group: TaskGroup | None = None
        self._parked: list[_Parked] = []
        self._asked: dict[str, Job] = {}
        self._unfinished = 0
        self._is_idle = anyio.Event()
        self._is_idle.set()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        async with anyio.create_task_group() as group:
            self._group = group
            task_status.started()
            await anyio.sleep_forever()

    def cancel(self) -> None:
        """Every handler, at once."""
        if self._group is not None:
            self._group.cancel_scope.cancel()

    async def wait_idle(self) -> None:
        await self._is_idle.wait()

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

    def abandon(self, envelope: Envelope) -> None:
        """Its handler is stopped; what is still in the queue is not begun."""
        job = self._asked.get(envelope.message_id)
        if job is not None:
            job.is_abandoned = True
            job.scope.cancel()

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
        if self._unfinished == 0:
            self._is_idle = anyio.Event()
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
            envelope = resident.take()
            if envelope is not None:
                await self._handle(resident, envelope)
                self._finished()
            resident = self.slots.swap(self._rest_of(resident))
            if resident is None and len(self._parked) < _MOST_PARKED:
                parked = _Parked()
                self._parked.append(parked)
                await parked.turn.wait()
                resident = parked.work

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
        self._unfinished -= 1
        if self._unfinished == 0:
            self._is_idle.set()

    async def _handle(self, resident: Resident, envelope: Envelope) -> None:
        if envelope.topic is None and not self._enquiries.is_open(envelope.message_id):
            await self._losses.lose(envelope, Reason.CANCELLED, "its sender did not wait until it was its turn")
            return
        job = Job(resident, envelope, anyio.CancelScope(deadline=envelope.deadline))
        is_asked = envelope.topic is None
        if is_asked:
            self._asked[envelope.message_id] = job
        ids = {"message": envelope.message_id, "agent": str(resident.id)}
        delivered = self._chronicle.stamp(MessageDelivered(), ids) if self._chronicle.is_on else None
        started = time.perf_counter()
        try:
            payload = await self._attempt(job)
            if delivered is not None:
                body = None if payload is None else self._chronicle.content(payload.data)
                taken = round((time.perf_counter() - started) * 1_000_000)
                event = MessageHandled(payload.name if payload else None, body, taken)
                await self._chronicle.write(delivered, self._chronicle.stamp(event, ids))
            if is_asked:
                await self.settle(Answer(envelope.message_id, resident.id, payload), envelope)
        except LostError as lost:
            await self._losses.lose(envelope, lost.reason, lost.detail, lost.error)
            self._tell_failure(job, lost.told)
        except AuditError as error:
            await self._losses.lose(envelope, Reason.UNRECORDED, str(error))
            self._tell_failure(job, error)
        finally:
            self._asked.pop(envelope.message_id, None)

    def _tell_failure(self, job: Job, error: FumehoodError) -> None:
        """Whether anybody still waits or not: it is a dead letter already."""
        if job.envelope.topic is None:
            answer = Answer(job.envelope.message_id, job.resident.id, failure=Failure.of(error))
            self._enquiries.settle(self._carry(answer))

    async def settle(self, answer: Answer, envelope: Envelope) -> None:
        """Hand an answer over to who waits for it; one that nobody waits for is a dead letter."""
        if not self._enquiries.settle(self._carry(answer)):
            is_late = anyio.current_time() >= envelope.deadline
            reason = Reason.LATE if is_late else Reason.UNASKED
            await self._losses.lose(envelope, reason, f"nobody waits for an answer by {answer.by} to this")

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

    # Making agents

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
