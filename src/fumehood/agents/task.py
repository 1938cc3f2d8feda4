"""One task of an agent or a team: begun, watched, cancelled, paused and resumed.

    TaskRunner.perform  ->  audit(started) -> participant.at_work -> participant.reply -> audit(ended) -> TaskResult

A task is one piece of work with one id. However it ends, what was open for it is closed, and the reason is recorded.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple

import anyio

from fumehood.agents import audit_records as records
from fumehood.agents.budget import Budget, UsageMeter
from fumehood.agents.events import TaskEnded, TaskEvent, TaskStarted
from fumehood.agents.messages import ChatMessage, UserMessage
from fumehood.agents.result import OutputKind, OutputT_co, Stop, StopReason, TaskResult
from fumehood.agents.sandbox_provider import LOCAL, SandboxProvider
from fumehood.agents.state import PausedTask
from fumehood.audit.events import Digest
from fumehood.audit.trail import Trail
from fumehood.errors import NotGrantedError, UsageError
from fumehood.results import Artifact
from fumehood.sandbox.audit import AuditChoice

if TYPE_CHECKING:
    from fumehood.agents.participant import Participant

Emit = Callable[[TaskEvent], None]
_CANCELLED = StopReason(Stop.CANCELLED, "`cancel` was called")


@dataclass(frozen=True, slots=True)
class TaskContext:
    """A task under way, as its participants see it."""

    task_id: str
    trail: Trail
    meter: UsageMeter
    emit: Emit
    messages: list[ChatMessage] = field(default_factory=list[ChatMessage])
    artifacts: dict[str, Artifact] = field(default_factory=dict[str, Artifact])
    """The artifacts by path: of a file that was made twice, the last."""

    def trail_of(self, agent: str) -> Trail:
        return records.of_agent(self.trail, agent)


@dataclass(frozen=True, slots=True)
class TurnResult(Generic[OutputT_co]):
    """The result of one participant's turn."""

    said: str
    """What the other participants read."""
    stop: StopReason
    output: OutputT_co | OutputKind = OutputKind.TEXT


class ParticipantFacts(NamedTuple):
    """What the audit log keeps of an agent or a team."""

    model: str
    tools: tuple[str, ...]
    policy_digest: str | None


class TaskRunner(Generic[OutputT_co]):
    """Runs the tasks of one agent or team, one at a time; to begin another one meanwhile is a UsageError."""

    def __init__(self, participant: Participant[OutputT_co], budget: Budget, audit: AuditChoice) -> None:
        self._participant, self._budget, self.audit = participant, budget, audit
        self._is_busy = self._is_cancelled = False
        self._scope: anyio.CancelScope | None = None
        self.paused: PausedTask | None = None

    def cancel(self) -> None:
        self._is_cancelled = self._is_busy
        if self._scope is not None:
            self._scope.cancel()

    @contextmanager
    def engaged(self) -> Iterator[None]:
        """Inside of the block no other task can begin."""
        self.refuse_while_busy("wait for the end of its task, or make another one like it")
        self._is_busy, self._is_cancelled = True, False
        try:
            yield
        finally:
            self._is_busy = False

    def refuse_while_busy(self, remedy: str) -> None:
        if self._is_busy:
            raise UsageError(f"{self._participant.name} is at work on another task; {remedy}")

    async def stream(self, news: Sequence[UserMessage]) -> AsyncGenerator[TaskEvent, None]:
        """An asyncio task of its own does the work: no cancel scope is open while our caller does other things."""
        events: asyncio.Queue[TaskEvent | None] = asyncio.Queue()
        performing = asyncio.create_task(self.perform(news, events.put_nowait))
        performing.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            yield TaskEnded(await performing)
        finally:
            if not performing.done():
                performing.cancel()
                with anyio.CancelScope(shield=True), suppress(asyncio.CancelledError):
                    await performing

    async def perform(
        self, news: Sequence[UserMessage], emit: Emit | None = None, provider: SandboxProvider = LOCAL
    ) -> TaskResult[OutputT_co]:
        """A new task; without news, the one that is paused."""
        with self.engaged():
            if news:
                await self.abandon(provider)
            elif self.paused is None:
                name = self._participant.name
                raise UsageError(f"{name} has no paused task to go on with; `run` begins a new one")
            return await self._recorded(news, emit or _ignore, provider)

    async def abandon(self, provider: SandboxProvider = LOCAL) -> None:
        if self.paused is not None:
            await self._participant.forget_pause(self._trail(self.paused.task_id, provider))
            self.paused = None

    async def _recorded(
        self, news: Sequence[UserMessage], emit: Emit, provider: SandboxProvider
    ) -> TaskResult[OutputT_co]:
        paused, self.paused = self.paused, None
        task = self._begin(paused, emit, provider)
        name, facts = self._participant.name, self._participant.facts()
        digest = Digest.of("\n".join(message.text for message in news).encode("utf-8", "surrogatepass"))
        await task.trail.write(records.TaskStartRecord(name, digest if news else None, *facts))
        emit(TaskStarted(name, task.task_id, facts.model))
        turn = self._stopped(StopReason(Stop.CANCELLED, "it was cut short"))
        try:
            turn = await self._bounded(news, task, provider)
        finally:
            await self._record_end(task, turn.stop)
        usage, messages = task.meter.usage, tuple(task.messages)
        if turn.stop.kind is Stop.APPROVAL_PENDING:
            self.paused = PausedTask(task_id=task.task_id, usage=usage, messages=messages)
        text = "" if isinstance(turn.output, OutputKind) else turn.said
        artifacts = tuple(task.artifacts.values())
        return TaskResult(messages, turn.stop, usage, artifacts, task.task_id, turn.output, text)

    def _begin(self, paused: PausedTask | None, emit: Emit, provider: SandboxProvider) -> TaskContext:
        task_id = paused.task_id if paused else f"task_{secrets.token_hex(8)}"
        meter = UsageMeter(self._budget, before=paused.usage if paused else None)
        messages = list(paused.messages) if paused else []
        return TaskContext(task_id, self._trail(task_id, provider), meter, emit, messages)

    async def _bounded(
        self, news: Sequence[UserMessage], task: TaskContext, provider: SandboxProvider
    ) -> TurnResult[OutputT_co]:
        """`cancel` and the clock end here; cancelling from outside goes on outward."""
        try:
            with anyio.CancelScope() as self._scope, anyio.move_on_after(task.meter.seconds_left()) as clock:
                if self._is_cancelled:  # before there was a scope
                    self._scope.cancel()
                async with self._participant.at_work(task.trail, provider):
                    return await self._participant.reply(news, task)
        except NotGrantedError as error:
            return self._stopped(StopReason(Stop.DENIED, str(error)))
        finally:
            self._scope = None
        if not clock.cancelled_caught:
            return self._stopped(_CANCELLED)
        return self._stopped(StopReason(Stop.BUDGET, "its time is over", limit="seconds"))

    async def _record_end(self, task: TaskContext, stop: StopReason) -> None:
        usage = task.meter.usage
        event = records.TaskEndRecord(
            self._participant.name,
            stop.kind,
            stop.detail or None,
            usage.turns,
            usage.tokens,
            usage.tool_calls,
            None if usage.unpriced else records.microdollars(usage.cost),
        )
        with anyio.CancelScope(shield=True):
            await task.trail.write(event)

    def _trail(self, task_id: str, provider: SandboxProvider) -> Trail:
        return provider.trail(self.audit).within(task=task_id)

    def _stopped(self, stop: StopReason) -> TurnResult[OutputT_co]:
        return TurnResult("", stop, self._participant.missing_output)


def _ignore(_: TaskEvent) -> None:
    """No caller watches this task."""
