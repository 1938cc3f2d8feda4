"""A runtime with assistants in it, as tests of that see it."""

from __future__ import annotations

from collections.abc import Callable

from unit.agents.witness import Witness

from fumehood import Policy
from fumehood.agents import AssistantMessage, ChatMessage, TaskDone, TaskRequest, ToolMessage
from fumehood.agents.agent import AssistantAgent
from fumehood.agents.models.interface import Model
from fumehood.runtime import LocalRuntime
from fumehood.tools import Tool

MakeRuntime = Callable[..., LocalRuntime]
SMALL = Policy(name="small", resources={"timeout": "20s"})


class Staff:
    """Assistants that were made, by the id that they have in the runtime; `hire` is what `resident` is given."""

    def __init__(self) -> None:
        self.members: dict[str, AssistantAgent] = {}

    def hire(self, model: Model, *tools: Tool, policy: Policy = SMALL, **options: object) -> Callable[..., object]:
        def make(id: object) -> AssistantAgent:
            name = str(id).partition("/")[0]
            made = AssistantAgent(name, model, tools=tools, policy=policy, **options)  # type: ignore[arg-type]
            self.members[str(id)] = made
            return made

        return make

    def heard(self, id: str) -> list[tuple[str, str]]:
        return [(message.source, message.text) for message in self.members[id].messages if message.kind == "user"]

    def results(self, id: str) -> list[ToolMessage]:
        return results(self.members[id].messages)

    def said(self, id: str) -> list[str]:
        return [message.text for message in self.members[id].messages if isinstance(message, AssistantMessage)]


def results(messages: tuple[ChatMessage, ...]) -> list[ToolMessage]:
    return [message for message in messages if isinstance(message, ToolMessage)]


async def ask(runtime: LocalRuntime, text: str, to: str) -> TaskDone:
    return await runtime.send(TaskRequest(text=text), to=to, reply=TaskDone)


def check_ends(witness: Witness) -> list[str]:
    """Each task that began has ended for a reason, on record, and nothing is open."""
    began, ended = witness.records("task.started"), witness.records("task.ended")
    assert [each["ids"]["task"] for each in began] != []
    assert sorted(each["ids"]["task"] for each in began) == sorted(each["ids"]["task"] for each in ended)
    assert witness.open_sandboxes() == 0
    return [each["data"]["stop"] for each in ended]
