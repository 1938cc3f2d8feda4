"""What every runtime offers to the application. `LocalRuntime` is the one in this process.

Nothing here says where agents are: messages are data, agents are named by ids, and an agent meets its runtime only
through the context that comes with a message. So the same agents run on one machine or many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar, overload

from fumehood.policy import Seconds
from fumehood.runtime.agent import Function, RuntimeAgent
from fumehood.runtime.deadletters import DeadLetters
from fumehood.runtime.grants import Grants
from fumehood.runtime.identity import AgentId, TopicId
from fumehood.runtime.messages import Catalogue
from fumehood.runtime.residents import Make
from fumehood.tools import Function as ToolFunction
from fumehood.tools import Tool

T = TypeVar("T")


class Runtime(Protocol):
    @property
    def messages(self) -> Catalogue:
        """The types of messages that it knows. Those that registered agents take and return are there already."""
        ...

    @property
    def dead_letters(self) -> DeadLetters: ...

    async def register(
        self,
        type: str,
        kind: type[RuntimeAgent] | Function | Sequence[Function],
        *,
        grants: Grants | None = None,
        make: Make | None = None,
        subscriptions: Sequence[str] = (),
        tools: Sequence[Tool | ToolFunction] = (),
        at_once: int = 1,
        reentrant: bool | None = None,
    ) -> None:
        """Agents of this type are made when messages for them come: a class, or one or more functions.

        `make` makes one, if the class alone cannot; it is given the id. Without `grants` an agent can answer, and do
        nothing else. `tools` are there for this type alone, and to be granted as those of the runtime are. `at_once` is
        how many messages one agent handles at the same time. An agent that is `reentrant` answers those whom it waits
        for while it waits; by default it is what its class says.
        """
        ...

    async def grant(self, agent: AgentId | str, grants: Grants) -> None:
        """Other grants from now on, for a type, or for one agent by its id. `Grants()` takes everything away."""
        ...

    @overload
    async def send(
        self, message: object, *, to: AgentId | str, sender: AgentId | None = None, deadline: Seconds | None = None
    ) -> object: ...

    @overload
    async def send(
        self,
        message: object,
        *,
        to: AgentId | str,
        sender: AgentId | None = None,
        deadline: Seconds | None = None,
        reply: type[T],
    ) -> T: ...

    async def send(
        self,
        message: object,
        *,
        to: AgentId | str,
        sender: AgentId | None = None,
        deadline: Seconds | None = None,
        reply: type[object] = object,
    ) -> object:
        """Send a message and wait for the answer, at most `deadline`: seconds, or a text such as `2m`.

        The application itself needs no grants; in an agent's name, as `sender`, it has that agent's.
        """
        ...

    async def publish(
        self,
        message: object,
        *,
        topic: TopicId | str,
        sender: AgentId | None = None,
        deadline: Seconds | None = None,
    ) -> None:
        """To all that are subscribed and have a handler for it. Returns when it waits in their queues."""
        ...

    async def retire(self, agent: AgentId | str) -> None:
        """End an agent that is not at work; the next message for it makes a new one."""
        ...

    async def idle(self) -> None:
        """Until no message is waiting or being handled."""
        ...

    async def stop(self, *, drain: bool = True) -> None:
        """Take nothing more from the application, let what is under way end, or cancel it; then end all agents."""
        ...

    async def save_state(self) -> Mapping[str, object]:
        """Of all agents, when none is at work; what JSON can hold."""
        ...

    async def load_state(self, state: Mapping[str, object]) -> None:
        """Before the first message: agents get theirs when they are made."""
        ...
