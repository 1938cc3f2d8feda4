"""Tools with which a model reaches other agents of its runtime. The grants of its agent decide which.

What it writes is a task for them, in its agent's name; whatever the text says of who wrote it is text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import Field

from fumehood.agents.budget import Usage
from fumehood.agents.result import Stop
from fumehood.errors import DeliveryError, NotGrantedError
from fumehood.runtime.context import MessageContext
from fumehood.runtime.messages import Message
from fumehood.tools.result import LongText, TextPart, ToolOutput, ToolStatus
from fumehood.tools.tool import Arguments, Risk, Tool, ToolContext


class TaskRequest(Message, name="fumehood.task"):
    """A task for an assistant or a team in a runtime."""

    text: str


class Resume(Message, name="fumehood.resume"):
    """Go on with the task that waits for an approval."""


class TaskDone(Message, name="fumehood.task_done"):
    """How a task ended."""

    text: str
    """The last thing that was said."""
    stop: Stop = Stop.DONE
    detail: str = ""
    approval: str | None = None
    """The question that has to be answered first, of a task that waits for that."""
    usage: Usage = Usage()
    task_id: str = ""
    artifacts: tuple[str, ...] = ()
    """Names of files that may leave. The files are the agent's; `out` of an agent is where they are copied to."""


class SendArguments(Arguments):
    to: str = Field(description="Who gets it: an agent, such as `reviewer` or `reviewer/anna`.")
    text: str = Field(description="The whole task or question; they know nothing else of yours.")


class PublishArguments(Arguments):
    topic: str = Field(description="Where it is published, such as `news.weather`.")
    text: str


async def _without_runtime(_: ToolContext, given: Any) -> ToolOutput:
    return ToolOutput("There is no other agent to write to: this agent is not in a runtime.", ToolStatus.ERROR)


SEND_MESSAGE = Tool(
    "send_message",
    "Send a message to another agent and wait for its answer.",
    SendArguments,
    Risk.MEDIUM,
    _without_runtime,
)
PUBLISH = Tool(
    "publish", "Publish a message to all subscribers; no answer comes.", PublishArguments, Risk.MEDIUM, _without_runtime
)


def connected(tool: Tool, context: MessageContext) -> Tool | None:
    """The same tool as a way into a runtime, for one message; None if it is not one of these."""
    if tool is SEND_MESSAGE:
        return replace(tool, run=_telling(partial(_send, context)))
    if tool is PUBLISH:
        return replace(tool, run=_telling(partial(_publish, context)))
    return None


def _telling(act: Callable[[Any], Awaitable[TextPart]]) -> Callable[[ToolContext, Any], Awaitable[ToolOutput]]:
    """What was refused, or did not get there, is a result in words; a model can do something else then."""

    async def run(_: ToolContext, given: Any) -> ToolOutput:
        try:
            return ToolOutput(await act(given))
        except NotGrantedError as error:
            return ToolOutput(f"Denied: {error}.", ToolStatus.DENIED)
        except DeliveryError as error:
            return ToolOutput(f"There is no answer: {error}.", ToolStatus.ERROR)

    return run


async def _send(context: MessageContext, given: SendArguments) -> TextPart:
    answer = await context.send(TaskRequest(text=given.text), to=given.to, reply=object)
    if not isinstance(answer, TaskDone):
        return f"{given.to} took it and answered nothing that could be read here."
    how = "answered" if answer.stop is Stop.DONE else f"stopped ({answer.stop}: {answer.detail})"
    return LongText(f"{given.to} {how}:\n{answer.text}")


async def _publish(context: MessageContext, given: PublishArguments) -> TextPart:
    await context.publish(TaskRequest(text=given.text), topic=given.topic)
    return f"It is published to {given.topic}."
