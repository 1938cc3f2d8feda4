"""A code writer and an executor: one model that writes, and no model at all where code is run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Unpack

from fumehood.agents.agent import AssistantAgent
from fumehood.agents.messages import CallRequest, ChatMessage, ToolMessage, UserMessage
from fumehood.agents.models.interface import Model, ModelAnswer, ModelEvent, ModelRequest, TextPiece
from fumehood.agents.task import TurnResult
from fumehood.agents.teams.orders import RoundRobinTeam
from fumehood.agents.teams.team import TeamOptions
from fumehood.agents.tool_runner import ApprovalSettings
from fumehood.keywords import known_keywords
from fumehood.policy import AnyPolicy
from fumehood.sandbox.request import place_in_policy
from fumehood.tools import PYTHON, SHELL
from fumehood.tools.approvals import Ask

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel

WRITER, EXECUTOR = "writer", "executor"
_INSTRUCTIONS = """\
You solve the task by writing code; it is run in a sandbox, and you get what it printed. Put code into \
blocks that begin with ```python or ```sh and end with ```, and print what you need to see. Each block is a program of \
its own; files in the current folder are kept. When you have the answer, give it without any block of code."""
_BLOCK = re.compile(r"^```[ \t]*([\w+-]*)[^\n]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_TOOLS = {
    **dict.fromkeys(("python", "py", "python3"), ("python", "code")),
    **dict.fromkeys(("sh", "bash", "shell"), ("shell", "command")),
}
_NO_CODE = "There was no block of code that can be run here; begin one with ```python or ```sh."


def code_calls(text: str) -> Iterator[CallRequest]:
    """The blocks of code in a text that can be run."""
    for number, (language, code) in enumerate(_BLOCK.findall(text)):
        if (known := _TOOLS.get(language.lower())) is not None and code.strip():
            tool, name = known
            yield CallRequest(call_id=f"block_{number}", tool=tool, arguments=json.dumps({name: code}))


class BlockReader:
    """A stand-in for a model: it calls the tool that runs the code blocks of others, and answers with the results."""

    name = "code blocks"

    def connected(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        last = request.messages[-1]
        if isinstance(last, UserMessage):
            calls = tuple(code_calls(last.text))
            answer = ModelAnswer(calls=calls, cost=0.0) if calls else ModelAnswer(_NO_CODE, cost=0.0)
        else:
            answer = ModelAnswer("\n".join(_results(request.messages)), cost=0.0)
        if answer.text:
            yield TextPiece(answer.text)
        yield answer


def _results(messages: tuple[ChatMessage, ...]) -> list[str]:
    """The results of the last tool calls."""
    found: list[str] = []
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        found.insert(0, message.text)
    return found


@known_keywords(elsewhere=place_in_policy)
def code_executor(
    name: str = EXECUTOR,
    *,
    policy: AnyPolicy | None = None,
    approvals: Ask | ApprovalSettings | None = None,
    session: bool = False,
    out: str | os.PathLike[str] | None = None,
) -> AssistantAgent:
    """A participant that runs the blocks of code in what it hears last, and says what they printed."""
    return AssistantAgent(
        name,
        BlockReader(),
        tools=[PYTHON, SHELL],
        policy=policy,
        approvals=approvals,
        description="Runs blocks of code in a sandbox.",
        session=session,
        out=out,
        # Blocks build on each other's files.
        parallel_calls=1,
    )


class CodingPair(RoundRobinTeam[str]):
    """`CodingPair("openai:gpt-5", policy=policy)`: writes and runs code until an answer has none.

    The writer has no tools; the executor has no model. What is run is in the conversation for everybody to read.
    """

    @known_keywords(TeamOptions, place_in_policy)
    def __init__(
        self,
        model: str | Model | TheirModel,
        *,
        policy: AnyPolicy | None = None,
        instructions: str = _INSTRUCTIONS,
        approvals: Ask | ApprovalSettings | None = None,
        session: bool = False,
        out: str | os.PathLike[str] | None = None,
        **options: Unpack[TeamOptions],
    ) -> None:
        writer = AssistantAgent(WRITER, model, instructions=instructions, description="Writes code.")
        executor = code_executor(policy=policy, approvals=approvals, session=session, out=out)
        super().__init__([writer, executor], **options)

    def is_done(self, speaker: str, reply: TurnResult[object]) -> bool:
        return speaker == WRITER and not any(code_calls(reply.said))
