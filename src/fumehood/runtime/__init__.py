"""A runtime for agents that exchange messages, with grants for everything that each of them may do.

    class Greeting(Message):
        name: str

    class Greeter(RuntimeAgent):
        @handles
        async def greet(self, message: Greeting, context: MessageContext) -> Reply: ...

    async with LocalRuntime() as runtime:
        await runtime.register("greeter", Greeter, grants=Grants(publish=["news.*"]))
        reply = await runtime.send(Greeting(name="Anna"), to="greeter", reply=Reply)

Owns identities, messages, topics, grants and the lifetime of agents. An agent reaches the outside only through the
context of a message: its identity, and what it may send, publish, open and call, are decided here. Must not know
models: what agents decide is outside this package.
"""

from fumehood.errors import (
    AgentFailedError,
    AgentLostError,
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
from fumehood.runtime.context import MessageContext
from fumehood.runtime.dead_letters import DeadLetter, DeadLetters, Reason
from fumehood.runtime.grants import Grants
from fumehood.runtime.identity import AgentId, TopicId
from fumehood.runtime.interceptors import DROP, Interceptor, MessageInfo, Stage
from fumehood.runtime.interface import Runtime, RuntimeLimits
from fumehood.runtime.local import LocalRuntime
from fumehood.runtime.messages import Message, MessageTypes
from fumehood.runtime.serialized import SerialisingRuntime
from fumehood.runtime.toolbox import GrantedSandbox, GrantedToolbox

__all__ = [
    "DROP",
    "AgentFailedError",
    "AgentId",
    "AgentLostError",
    "DeadLetter",
    "DeadLetters",
    "DeadlineError",
    "DeliveryError",
    "GrantedSandbox",
    "GrantedToolbox",
    "Grants",
    "Interceptor",
    "LocalRuntime",
    "LoopError",
    "Message",
    "MessageContext",
    "MessageError",
    "MessageInfo",
    "MessageTypes",
    "NotGrantedError",
    "OverloadedError",
    "Reason",
    "RefusedError",
    "Runtime",
    "RuntimeAgent",
    "RuntimeLimits",
    "SerialisingRuntime",
    "Stage",
    "StoppedError",
    "TopicId",
    "handles",
]
