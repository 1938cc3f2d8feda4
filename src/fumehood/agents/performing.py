"""What agents and teams have in common: a task is begun, watched, cancelled, paused, resumed, and always ends.

    run / run_stream / resume  ->  audit(started) -> at_work -> reply -> audit(ended) -> TaskResult

A task is one piece of work with one id. However it ends, what was open for it is closed, and why it ended is on record.
"""

from __future__ import annotations

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import anyio

from fumehood.agents import trail as records
from fumehood.agents.budget import Budget, Ledger
from fumehood.agents.events import TaskEnded, TaskEvent, TaskStarted
from fumehood.agents.messages import USER, Message, UserMessage
from fumehood.agents.premises import OWN, Premises
from fumehood.agents.result import TaskResult
from fumehood.agents.state import AnyState, PausedTask
from fumehood.agents.stopping import Stop, StopReason
from fumehood.audit.events import Digest
from fumehood.audit.trail import Trail
from fumehood.errors import NotGrantedError, UsageError
from fumehood.results import Artifact
from fumehood.sandbox.opening import AuditChoice

Emit = Callable[[TaskEvent], None]
_CANCELLED = StopReason(Stop.CANCELLED, "somebody cancelled it")


@dataclass(frozen=True, slots=True)
class Work:
    """One task, as those who take part in it see it."""

    task_id: str
    trail: Trail
    ledger: Ledger
    emit: Emit
    messages: list[Message] = field(default_factory=list[Message])
    artifacts: dict[str, Artifact] = field(default_factory=dict[str, Artifact])
    """By path: of a file that was made twice, the last."""

    def trail_of(self, agent: str) -> Trail:
        return records.of_agent(self.trail, agent)


class Reply(NamedTuple):
    """What a turn came to: what the others get to read, and why it ended."""

    said: str
    stop: StopReason


class Facts(NamedTuple):
    """For the record."""

    model: str
    tools: tuple[str, ...]
    policy_digest: str | None


class Performer(ABC):
    """One task at a time; to begin another one meanwhile is a mistake."""

    def __init__(self, name: str, description: str, budget: Budget | None, audit: AuditChoice) -> None:
        if not name.replace("_", "").replace("-", "").isalnum() or not name.isascii():
            raise UsageError(f"the name {name!r} must be made of letters, digits, `-` and `_`")
        if name == USER:
            raise UsageError(f"the name {USER!r} is the user's; nobody else can have it")
        if not isinstance(cast("object", budget), Budget | None):
            raise UsageError(f"budget must be a Budget, such as Budget(tokens=10_000); this is {type(budget).__name__}")
        self.name, self.description = name, description
        self._budget, self._audit = budget or Budget(), audit
        self._is_busy = self._is_cancelled = False
        self._scope: anyio.CancelScope | None = None
        self._paused: PausedTask | None = None

    @abstractmethod
    def at_work(self, trail: Trail, premises: Premises) -> AbstractAsyncContextManager[object]:
        """Around a task: whatever is needed for it is open. Inside of another one of these it changes nothing."""

    @abstractmethod
    async def reply(self, news: Sequence[UserMessage], work: Work) -> Reply:
        """One turn. Without news, a turn goes on that was paused."""

    @abstractmethod
    def facts(self) -> Facts: ...

    @abstractmethod
    def state(self) -> AnyState:
        """What is kept of it between processes."""

    @abstractmethod
    def load_state(self, data: Mapping[str, object]) -> None:
        """Take over what `save_state` of one of this name gave. Its tools and policies stay as they are."""

    @abstractmethod
    async def forget_pause(self, trail: Trail) -> None:
        """Take back what a paused turn waits for."""

    async def run(self, task: str) -> TaskResult:
        """Work on a task to its end. However a model behaves, that is a result with a `stop_reason`."""
        return await self.perform([UserMessage(text=task)])

    def run_stream(self, task: str) -> AsyncGenerator[TaskEvent, None]:
        """As `run`, but everything is seen as it happens. The last event is `TaskEnded`; leaving early cancels."""
        return self._stream([UserMessage(text=task)])

    async def resume(self) -> TaskResult:
        """Go on with a task that waits for an approval, also in another process after `load_state`."""
        return await self.perform([])

    def resume_stream(self) -> AsyncGenerator[TaskEvent, None]:
        return self._stream([])

    def cancel(self) -> None:
        """End the task under way with the reason `cancelled`; nothing of it is left. Without a task, do nothing."""
        self._is_cancelled = self._is_busy
        if self._scope is not None:
            self._scope.cancel()

    async def abandon(self) -> None:
        """Give a paused task up: nobody has to answer for it any more."""
        await self._abandon(OWN)

    @property
    def is_paused(self) -> bool:
        return self._paused is not None

    def save_state(self) -> dict[str, object]:
        """What was said, and a task that is paused, as JSON data. Files of sandboxes are not part of it."""
        self._refuse_while_busy("its state can be saved when the task has ended or is paused")
        return self.state().model_dump(mode="json")

    @contextmanager
    def engaged(self) -> Iterator[None]:
        """At work on something, and for nobody else meanwhile."""
        self._refuse_while_busy("wait for the end of its task, or make another one like it")
        self._is_busy, self._is_cancelled = True, False
        try:
            yield
        finally:
            self._is_busy = False

    def _refuse_while_busy(self, remedy: str) -> None:
        if self._is_busy:
            raise UsageError(f"{self.name} is at work on another task; {remedy}")

    async def _stream(self, news: Sequence[UserMessage]) -> AsyncGenerator[TaskEvent, None]:
        """The work is done by a task of its own: no cancel scope of it is open while our caller does something else."""
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
        self, news: Sequence[UserMessage], emit: Emit | None = None, premises: Premises = OWN
    ) -> TaskResult:
        """As `run`, or as `resume` without news, for whoever has more to say than a text: who speaks, and where."""
        with self.engaged():
            if news:
                await self._abandon(premises)
            elif self._paused is None:
                raise UsageError(f"{self.name} has no paused task to go on with; `run` begins a new one")
            return await self._recorded(news, emit or _ignore, premises)

    async def _abandon(self, premises: Premises) -> None:
        if self._paused is not None:
            await self.forget_pause(self._trail(self._paused.task_id, premises))
            self._paused = None

    async def _recorded(self, news: Sequence[UserMessage], emit: Emit, premises: Premises) -> TaskResult:
        paused, self._paused = self._paused, None
        work = self._begin(paused, emit, premises)
        facts = self.facts()
        task = Digest.of("\n".join(message.text for message in news).encode("utf-8", "surrogatepass"))
        await work.trail.write(records.TaskStarted(self.name, task if news else None, *facts))
        emit(TaskStarted(self.name, work.task_id, facts.model))
        stop = StopReason(Stop.CANCELLED, "it was cut short")
        try:
            stop = await self._bounded(news, work, premises)
        finally:
            await self._tell_end(work, stop)
        usage, messages = work.ledger.usage, tuple(work.messages)
        if stop.kind is Stop.APPROVAL_PENDING:
            self._paused = PausedTask(task_id=work.task_id, usage=usage, messages=messages)
        return TaskResult(messages, stop, usage, tuple(work.artifacts.values()), work.task_id)

    def _begin(self, paused: PausedTask | None, emit: Emit, premises: Premises) -> Work:
        task_id = paused.task_id if paused else f"task_{secrets.token_hex(8)}"
        ledger = Ledger(self._budget, before=paused.usage if paused else None)
        return Work(task_id, self._trail(task_id, premises), ledger, emit, list(paused.messages if paused else ()))

    async def _bounded(self, news: Sequence[UserMessage], work: Work, premises: Premises) -> StopReason:
        """`cancel` and the clock end here; cancelling from outside goes on outward."""
        try:
            with anyio.CancelScope() as self._scope, anyio.move_on_after(work.ledger.seconds_left()) as clock:
                if self._is_cancelled:  # before there was a scope
                    self._scope.cancel()
                async with self.at_work(work.trail, premises):
                    return (await self.reply(news, work)).stop
        except NotGrantedError as error:
            return StopReason(Stop.DENIED, str(error))
        finally:
            self._scope = None
        if not clock.cancelled_caught:
            return _CANCELLED
        return StopReason(Stop.BUDGET, "its time is over", limit="seconds")

    async def _tell_end(self, work: Work, stop: StopReason) -> None:
        usage = work.ledger.usage
        event = records.TaskEnded(
            self.name, stop.kind, stop.detail or None, usage.turns, usage.tokens, usage.tool_calls
        )
        with anyio.CancelScope(shield=True):
            await work.trail.write(event)

    def _trail(self, task_id: str, premises: Premises) -> Trail:
        return premises.trail(self._audit).within(task=task_id)


def _ignore(_: TaskEvent) -> None:
    """Nobody watches."""
