"""An agent: a model that is given a task and tools.

What a model says changes nothing of what it may do: tools, policy, targets of handoffs and budget are fixed when the
agent is made.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio

from fumehood.agents import audit_records as records
from fumehood.agents.budget import Budget, UsageMeter
from fumehood.agents.handoff import check_targets, handoff_tool
from fumehood.agents.memory import Compaction, Memory, OldestFirst
from fumehood.agents.messages import ChatMessage, ToolMessage, UserMessage
from fumehood.agents.model_client import ModelClient
from fumehood.agents.models.interface import Model
from fumehood.agents.models.names import as_model
from fumehood.agents.output import OUTPUT_TOOL, OutputSchema
from fumehood.agents.participant import Participant
from fumehood.agents.result import OutputKind, OutputT_co, Stop, StopReason
from fumehood.agents.sandbox_provider import LOCAL, ProvidedSandbox, SandboxProvider
from fumehood.agents.state import AgentState, read_state
from fumehood.agents.task import ParticipantFacts, TaskContext, TurnResult
from fumehood.agents.tool_runner import ApprovalSettings, ArtifactFolder, ToolSetup
from fumehood.agents.turn import AgentTurn
from fumehood.audit.trail import Trail
from fumehood.errors import UsageError
from fumehood.keywords import known_keywords
from fumehood.policy import AnyPolicy, Policy, read_policy
from fumehood.sandbox.audit import AuditChoice
from fumehood.sandbox.interface import AnySandbox, Opener
from fumehood.sandbox.request import place_in_policy
from fumehood.tools.approvals import Ask
from fumehood.tools.filters import Pipeline
from fumehood.tools.functions import Function, as_tools
from fumehood.tools.result import ToolStatus
from fumehood.tools.tool import Tool

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel


class AssistantAgent(Participant[OutputT_co]):
    """`AssistantAgent("coder", "openai:gpt-5", tools=[PYTHON], policy=policy)`; `await agent.run("...")`.

    `model` is one string (`fumehood.agents.models.names`), a model of ours or one of pydantic-ai's. Without `tools` it
    only talks; with them, its calls are carried out in a sandbox under `policy`, which denies everything by default.
    `approvals` answers where the policy asks: a function, or `ApprovalSettings`. `handoffs` are the agents, or their
    names, that it may hand a task over to. With `session`, Python state lives on between calls. `out` is a folder that
    artifacts are copied to. `parallel_calls` is how many calls of one answer are carried out at the same time, and
    `compaction` what the model reads of a conversation that becomes too long. With `output_type` the answer is a value
    of that type, `result.output`; a wrong one is sent back to the model `output_retries` times. `sandboxes` opens its
    sandboxes, elsewhere than here.

    The conversation goes on from task to task; the sandbox does so inside of `async with agent:`, else each task has
    its own.
    """

    @known_keywords(elsewhere=place_in_policy)
    def __init__(
        self,
        name: str,
        model: str | Model | TheirModel,
        *,
        tools: Sequence[Tool | Function] = (),
        policy: AnyPolicy | None = None,
        instructions: str = "",
        filters: Pipeline | None = None,
        approvals: Ask | ApprovalSettings | None = None,
        budget: Budget | None = None,
        handoffs: Sequence[str | Participant[object]] = (),
        description: str = "",
        session: bool = False,
        out: str | os.PathLike[str] | None = None,
        audit: AuditChoice = None,
        parallel_calls: int = 8,
        compaction: Compaction | None = None,
        output_type: type[OutputT_co] | None = None,
        output_retries: int = 2,
        sandboxes: Opener | None = None,
    ) -> None:
        super().__init__(name, description or instructions, budget, audit)
        self._model = as_model(model)
        self._instructions = instructions
        self._output = None if output_type in (None, str) else OutputSchema(output_type, output_retries)
        self.handoffs = check_targets(handoffs)
        given = (*as_tools(tools), *([handoff_tool(self.handoffs)] if self.handoffs else ()))
        names = [*(tool.name for tool in given), *([OUTPUT_TOOL] if self._output else ())]
        if len(set(names)) != len(names):
            raise UsageError(f"two tools of {name} have the same name; give each its own")
        if parallel_calls < 1:
            raise UsageError(f"parallel_calls must be 1 or more; this is {parallel_calls!r}")
        self._tools = ToolSetup(
            read_policy(policy) or Policy(),
            given,
            approvals if isinstance(approvals, ApprovalSettings) else ApprovalSettings(approvals),
            filters,
            session,
            None if out is None else ArtifactFolder(out),
            parallel_calls,
            sandboxes,
        )
        self._memory = Memory(compaction or OldestFirst())
        self._approval: str | None = None
        self._provided: ProvidedSandbox | None = None
        self._provider: SandboxProvider | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._held = AsyncExitStack()

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        """Everything that was said, in all tasks."""
        return tuple(self._memory.all)

    @property
    def policy(self) -> Policy:
        return self._tools.policy

    @property
    def sandbox(self) -> AnySandbox | None:
        """While a task is under way, or inside of `async with agent:`; None without tools."""
        return self._provided.sandbox if self._provided else None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.at_work(LOCAL.trail(self.tasks.audit), LOCAL))
            self._held = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._held.aclose()

    def state(self) -> AgentState:
        return AgentState(
            name=self.name, messages=tuple(self._memory.all), approval=self._approval, task=self.tasks.paused
        )

    def load_state(self, data: Mapping[str, object]) -> None:
        self.tasks.refuse_while_busy("load a state before its task begins")
        state = read_state(AgentState, self.name, data)
        self._memory.load(state.messages)
        self._approval, self.tasks.paused = state.approval, state.task

    def facts(self) -> ParticipantFacts:
        names = tuple(tool.name for tool in self._tools.tools)
        return ParticipantFacts(self._model.name, names, self._tools.policy.digest if names else None)

    @asynccontextmanager
    async def at_work(self, trail: Trail, provider: SandboxProvider) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        if self._provider is provider and self._loop is loop:
            yield
            return
        if self._provider is not None:
            where = "elsewhere" if self._provider is not provider else "in another event loop"
            raise UsageError(f"{self.name} is already open {where}; leave its `async with` block before")
        opening = self._tools.opened(records.of_agent(trail, self.name), provider)
        async with self._model.connected(), opening as self._provided:
            self._provider, self._loop = provider, loop
            self._memory.has_lost_files = any(map(_was_carried_out, self._memory.all))
            try:
                yield
            finally:
                self._provider = self._provided = self._loop = None

    async def forget_pause(self, trail: Trail) -> None:
        if self._approval is not None:
            await self._tools.withdraw(self._approval, records.of_agent(trail, self.name))
            self._approval = None

    @property
    def missing_output(self) -> OutputKind:
        return OutputKind.TEXT if self._output is None else OutputKind.NONE

    async def reply(self, news: Sequence[UserMessage], task: TaskContext) -> TurnResult[OutputT_co]:
        tools = self._tools.runner(self._provided, self.name, task)
        meter = UsageMeter(self._budget, parent=task.meter)
        client = ModelClient(self.name, self._model, self._instructions, self._memory, tools.filters, meter, task)
        turn = AgentTurn(self.name, client, tools, meter, task, self._output)
        if self._approval is not None:
            tools.expect(self._approval)
            self._approval = None
        if news:
            await turn.begin(news)
        stop = StopReason(Stop.BUDGET, "its time is over", limit="seconds")
        with anyio.move_on_after(meter.seconds_left()):
            stop = await turn.run()
        self._approval = turn.approval
        await tools.deliver()
        return turn.result(stop)


def _was_carried_out(message: ChatMessage) -> bool:
    if not isinstance(message, ToolMessage) or message.tool == OUTPUT_TOOL:
        return False
    return message.status in (ToolStatus.SUCCESS, ToolStatus.ERROR)
