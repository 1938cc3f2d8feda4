"""The interface of every runtime, and its limits. `LocalRuntime` is the implementation in this process.

The interface does not depend on where agents are: messages are data, agents are named by ids, and an agent reaches its
runtime only through the context of a message. So the same agents run on one machine or many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Protocol, TypeVar, overload

from fumehood.errors import UsageError
from fumehood.keywords import known_fields
from fumehood.policy import Seconds, read_seconds
from fumehood.runtime.agent import Function, Make, RuntimeAgent
from fumehood.runtime.dead_letters import DeadLetters
from fumehood.runtime.grants import Grants
from fumehood.runtime.identity import AgentId, TopicId
from fumehood.runtime.messages import MessageTypes
from fumehood.tools import Function as ToolFunction
from fumehood.tools import Tool

_MIB = 1024 * 1024


@known_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeLimits:
    """Upper bounds of everything that agents can make a runtime hold; there is no "unlimited"."""

    message_bytes: int = _MIB
    """Most bytes of one message, as JSON."""
    deadline_seconds: float = 300.0
    """The default deadline of a message; waiting in a queue counts."""
    hops: int = 32
    """How often a message may lead to another one."""
    queue_messages: int = 1000
    """Waiting for one agent. When it is full, senders wait; handlers of agents may fill it to twice that."""
    queue_bytes: int = 16 * _MIB
    reentrant_requests: int = 100
    """Requests that one agent handles at a time while it waits for their senders."""
    handlers: int = 100
    """Running at the same time in the whole runtime. One that waits for another agent's answer is not counted."""
    agents: int = 10_000
    """Most agents that exist at the same time."""
    subscriptions: int = 1000
    """Most subscriptions that agents make at run time, all together."""
    dead_letters: int = 1000
    dead_letter_bytes: int = 16 * _MIB
    stop_seconds: float = 10.0
    """Time for the `on_stop` of all agents together."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value: float | str = getattr(self, each.name)
            if isinstance(value, str) and each.name.endswith("_seconds"):
                value = read_seconds(value, f"RuntimeLimits.{each.name}")
                object.__setattr__(self, each.name, value)
            if isinstance(value, str | bool):
                raise UsageError(f"RuntimeLimits.{each.name} must be a number; this is {value!r}")
            if not 0 < value < float("inf"):
                raise UsageError(
                    f"RuntimeLimits.{each.name} must be more than 0 and less than infinity; this is {value!r}"
                )


T = TypeVar("T")


class Runtime(Protocol):
    @property
    def messages(self) -> MessageTypes:
        """The known message types. Those that registered agents take and return are added by `register`."""
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
        redeliver: bool = False,
    ) -> None:
        """Registers a type of agents: a class, or one or more functions. Agents are created at their first message.

        `make` creates one from its id, if the class alone cannot. Without `grants` an agent can answer, and do nothing
        else. `tools` belong to this type alone and need grants as those of the runtime do. `at_once` is how many
        messages one agent handles at the same time. A `reentrant` agent handles requests from the agents that it waits
        for; the default is the class attribute. Where agents are in several processes, a publication whose handler was
        lost with its process is handled again with `redeliver`, perhaps for the second time; without it, at most once.
        """
        ...

    async def grant(self, agent: AgentId | str, grants: Grants) -> None:
        """Replaces the grants of a type, or of one agent by its id. `Grants()` removes all."""
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

        The application itself needs no grants; with `sender` the grants of that agent are checked.
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
        """Publishes a message to all subscribers with a handler for it. Returns when it is in their queues."""
        ...

    async def retire(self, agent: AgentId | str) -> None:
        """Ends an idle agent; the next message for it creates a new one."""
        ...

    async def idle(self) -> None:
        """Waits until no message is queued or being handled."""
        ...

    async def stop(self, *, drain: bool = True) -> None:
        """Accepts no more messages from the application, drains or cancels the others, then ends all agents."""
        ...

    async def save_state(self) -> Mapping[str, object]:
        """The states of all agents as JSON data, taken while no handler runs."""
        ...

    async def load_state(self, state: Mapping[str, object]) -> None:
        """Must be called before the first message: agents load their states when they are created."""
        ...
