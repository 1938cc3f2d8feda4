"""Agents that send each other messages, and a runtime that decides what each of them may do.

    class Greeting(Message):
        name: str

    class Greeter(RuntimeAgent):
        @handles
        async def greet(self, message: Greeting, context: Context) -> Reply: ...

    async with LocalRuntime() as runtime:
        await runtime.register("greeter", Greeter, grants=Grants(publish=["news.*"]))
        reply = await runtime.send(Greeting(name="Anna"), to="greeter", reply=Reply)

Owns identities, messages, topics, grants and the life of agents. An agent has a context for each message and nothing
else: who it is, what it may send, publish, open and call is decided here. Must not know models: what agents decide is
their own business.
"""

from fumehood.errors import (
    AgentFailedError,
    DeadlineError,
    DeliveryError,
    LoopError,
    MessageError,
    NotGrantedError,
    OverloadedError,
    RefusedError,
    StoppedError,
)
from fumehood.runtime.agent import RuntimeAgent, handles
from fumehood.runtime.context import Context
from fumehood.runtime.deadletters import DeadLetter, DeadLetters, Reason
from fumehood.runtime.grants import Grants
from fumehood.runtime.identity import AgentId, TopicId
from fumehood.runtime.interception import DROP, Interceptor, Passage, Stage
from fumehood.runtime.interface import Runtime
from fumehood.runtime.limits import Limits
from fumehood.runtime.local import LocalRuntime
from fumehood.runtime.messages import Catalogue, Message
from fumehood.runtime.serialising import SerialisingRuntime
from fumehood.runtime.toolboxes import GrantedRoom, GrantedToolbox

__all__ = [
    "DROP",
    "AgentFailedError",
    "AgentId",
    "Catalogue",
    "Context",
    "DeadLetter",
    "DeadLetters",
    "DeadlineError",
    "DeliveryError",
    "GrantedRoom",
    "GrantedToolbox",
    "Grants",
    "Interceptor",
    "Limits",
    "LocalRuntime",
    "LoopError",
    "Message",
    "MessageError",
    "NotGrantedError",
    "OverloadedError",
    "Passage",
    "Reason",
    "RefusedError",
    "Runtime",
    "RuntimeAgent",
    "SerialisingRuntime",
    "Stage",
    "StoppedError",
    "TopicId",
    "handles",
]
