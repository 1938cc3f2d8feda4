"""What agents and teams have in common: a name, tasks, and a place in a team.

The public methods are here; `TaskRunner` does the work, and calls what each kind of participant defines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Generic, cast

from fumehood.agents.budget import Budget
from fumehood.agents.events import TaskEvent
from fumehood.agents.messages import USER, UserMessage
from fumehood.agents.result import OutputKind, OutputT_co, TaskResult
from fumehood.agents.sandbox_provider import SandboxProvider
from fumehood.agents.state import AnyState
from fumehood.agents.task import ParticipantFacts, TaskContext, TaskRunner, TurnResult
from fumehood.audit.trail import Trail
from fumehood.concurrency.portal import run_blocking
from fumehood.errors import UsageError
from fumehood.sandbox.audit import AuditChoice


class Participant(ABC, Generic[OutputT_co]):
    """An agent or a team, with one task at a time."""

    def __init__(self, name: str, description: str, budget: Budget | None, audit: AuditChoice) -> None:
        if not name.replace("_", "").replace("-", "").isalnum() or not name.isascii():
            raise UsageError(f"the name {name!r} must be made of letters, digits, `-` and `_`")
        if name == USER:
            raise UsageError(f"the name {USER!r} is the user's; no agent or team can have it")
        if not isinstance(cast("object", budget), Budget | None):
            raise UsageError(f"budget must be a Budget, such as Budget(tokens=10_000); this is {type(budget).__name__}")
        self.name, self.description = name, description
        self._budget = budget or Budget()
        self.tasks: TaskRunner[OutputT_co] = TaskRunner(self, self._budget, audit)

    @abstractmethod
    def at_work(self, trail: Trail, provider: SandboxProvider) -> AbstractAsyncContextManager[object]:
        """Around a task: whatever is needed for it is open. Inside of another one of these it changes nothing."""

    @abstractmethod
    async def reply(self, news: Sequence[UserMessage], task: TaskContext) -> TurnResult[OutputT_co]:
        """One turn. Without news, the turn that was paused goes on."""

    @abstractmethod
    def facts(self) -> ParticipantFacts: ...

    @property
    @abstractmethod
    def missing_output(self) -> OutputKind:
        """The output of a task that ends before there is an answer."""

    @abstractmethod
    def state(self) -> AnyState:
        """What is kept of it between processes."""

    @abstractmethod
    def load_state(self, data: Mapping[str, object]) -> None:
        """Take over what `save_state` of one of this name gave. Its tools and policies stay as they are."""

    @abstractmethod
    async def forget_pause(self, trail: Trail) -> None:
        """Withdraw the approval request that a paused turn waits for."""

    async def run(self, task: str) -> TaskResult[OutputT_co]:
        """Work on a task to its end. However a model behaves, that is a result with a `stop_reason`."""
        return await self.tasks.perform([UserMessage(text=task)])

    def run_sync(self, task: str) -> TaskResult[OutputT_co]:
        """A blocking `run`, for callers without an event loop, or in one that they may block, as in a notebook.

        The task runs in an event loop and a thread of its own. An exception here, such as KeyboardInterrupt, cancels
        it, and is raised when everything that it had opened is closed.
        """
        return run_blocking(partial(self.run, task))

    def run_stream(self, task: str) -> AsyncGenerator[TaskEvent, None]:
        """Runs a task and yields events as they happen. The last event is `TaskEnded`; leaving early cancels."""
        return self.tasks.stream([UserMessage(text=task)])

    async def resume(self) -> TaskResult[OutputT_co]:
        """Go on with a task that waits for an approval, also in another process after `load_state`."""
        return await self.tasks.perform([])

    def resume_stream(self) -> AsyncGenerator[TaskEvent, None]:
        return self.tasks.stream([])

    def cancel(self) -> None:
        """End the task under way with the reason `cancelled`; nothing of it is left. Without a task, do nothing."""
        self.tasks.cancel()

    async def abandon(self) -> None:
        """Give a paused task up, and withdraw its approval request."""
        await self.tasks.abandon()

    @property
    def is_paused(self) -> bool:
        return self.tasks.paused is not None

    def save_state(self) -> dict[str, object]:
        """The conversation, and a task that is paused, as JSON data. Files of sandboxes are not part of it."""
        self.tasks.refuse_while_busy("its state can be saved when the task has ended or is paused")
        return self.state().model_dump(mode="json")
