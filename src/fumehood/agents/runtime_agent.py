"""Assistants and teams as agents of a runtime: a message is a task, and the answer is how it ended.

    await runtime.register("coder", resident(lambda id: AssistantAgent("coder", model, tools=[PYTHON], policy=policy)),
                           grants=Grants(tools=["python"], policies=[policy]))
    done = await runtime.send(Task(text="..."), to="coder", reply=TaskDone)

Sandboxes and tools come from the runtime, which judges each of them by grants, and so do the records. A message that is
cancelled or late cancels its task.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self
from weakref import WeakKeyDictionary

from fumehood.agents.handoff import HANDOFF_TOOL
from fumehood.agents.messages import USER, UserMessage
from fumehood.agents.messaging_tools import Resume, TaskDone, TaskRequest, connected
from fumehood.agents.participant import Participant
from fumehood.agents.result import TaskResult
from fumehood.audit.trail import Trail
from fumehood.errors import RefusedError, UsageError
from fumehood.policy import Policy
from fumehood.runtime.agent import RuntimeAgent, handles
from fumehood.runtime.context import MessageContext
from fumehood.runtime.identity import AgentId
from fumehood.runtime.toolbox import GrantedSandbox
from fumehood.sandbox.audit import AuditChoice
from fumehood.sandbox.interface import AnySandbox, Opener
from fumehood.tools.calls import Gate
from fumehood.tools.filters import Pipeline
from fumehood.tools.result import head_and_tail
from fumehood.tools.tool import Tool
from fumehood.tools.toolbox import Toolbox

# What a message has room for, however it is written as JSON.
_MOST_SAID = 120_000
_MOST_DETAIL = 2_000
_MOST_NAMES = 100
_LONGEST_NAME = 250


class TaskAgent(RuntimeAgent):
    """One task at a time, in one conversation with everybody who writes to it: who must not hear of each other's write
    to agents of different keys."""

    # A question in the middle of a task would have to be a second task.
    reentrant = False

    def __init__(self, participant: Participant[object]) -> None:
        self.participant = participant

    @handles
    async def run_task(self, message: TaskRequest, context: MessageContext) -> TaskDone:
        source = USER if context.sender is None else str(context.sender)
        return await self._perform([UserMessage(source=source, text=message.text)], context)

    @handles
    async def go_on(self, message: Resume, context: MessageContext) -> TaskDone:
        if not self.participant.is_paused:
            raise RefusedError(f"{context.id} has no paused task to go on with")
        return await self._perform([], context)

    async def _perform(self, news: Sequence[UserMessage], context: MessageContext) -> TaskDone:
        return _told(await self.participant.tasks.perform(news, provider=RuntimeSandboxProvider(context)))

    async def save_state(self) -> Mapping[str, object]:
        return self.participant.save_state()

    async def load_state(self, state: Mapping[str, object]) -> None:
        self.participant.load_state(state)


def task_agent(make: Callable[[AgentId], Participant[object]]) -> type[TaskAgent]:
    """A kind of agents to register; `make` makes the assistant or team of an id, a new one for each."""

    ids: WeakKeyDictionary[Participant[object], AgentId] = WeakKeyDictionary()

    class Made(TaskAgent):
        @classmethod
        def create(cls, id: AgentId) -> Self:
            participant = make(id)
            # Keys keep people apart. One object for two of them would tell each what the other said.
            if ids.setdefault(participant, id) != id:
                raise UsageError(f"{id} was given the assistant of {ids[participant]}; make a new one for each id")
            return cls(participant)

    return Made


@dataclass(frozen=True, slots=True, eq=False)
class RuntimeSandboxProvider:
    """A runtime's, as long as one message is being handled."""

    context: MessageContext

    def trail(self, wanted: AuditChoice) -> Trail:
        """The runtime's, whatever the agent was made with."""
        return self.context.trail

    @asynccontextmanager
    async def opened(
        self, policy: Policy, *, session: bool, trail: Trail, wanted: Opener | None
    ) -> AsyncIterator[RuntimeSandbox]:
        """The runtime's, whatever the agent was made with."""
        async with self.context.sandbox(policy, session=session, gated=True, ids=trail.ids) as provided:
            yield RuntimeSandbox(provided, self.context)


@dataclass(frozen=True, slots=True)
class RuntimeSandbox:
    _granted: GrantedSandbox
    _context: MessageContext

    @property
    def sandbox(self) -> AnySandbox:
        return self._granted.sandbox

    def toolbox(self, tools: Sequence[Tool], *, gate: Gate, filters: Pipeline, trail: Trail) -> Toolbox:
        """The runtime's tools are its own; only what leads from agent to agent is brought along."""
        common: list[Tool] = []
        own: list[Tool] = []
        for tool in tools:
            if (way := connected(tool, self._context)) is not None:
                own.append(way)
            else:
                (own if tool.name == HANDOFF_TOOL else common).append(tool)
        return self._granted.toolbox(common, own=own, gate=gate, filters=filters, ids=trail.ids)


def _told(result: TaskResult[object]) -> TaskDone:
    stop = result.stop_reason
    return TaskDone(
        text=_clean(result.text, _MOST_SAID),
        stop=stop.kind,
        detail=_clean(stop.detail, _MOST_DETAIL),
        approval=stop.approval,
        usage=result.usage,
        task_id=result.task_id,
        artifacts=tuple(_clean(artifact.path, _LONGEST_NAME) for artifact in result.artifacts[:_MOST_NAMES]),
    )


def _clean(text: str, most: int) -> str:
    """Half of a surrogate pair cannot be sent."""
    return head_and_tail(text.encode("utf-8", "replace").decode(), most)
