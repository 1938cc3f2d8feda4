"""The context of one message: how an agent sends, publishes, subscribes and opens sandboxes while it handles it.

The fields are for the agent to read. The sender's identity is decided by the `RuntimeLink` behind the context, which
the runtime makes for that agent and that message alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, overload

from fumehood.audit import Trail
from fumehood.keywords import known_keywords
from fumehood.policy import AnyPolicy, Policy, Seconds, read_policy
from fumehood.runtime.identity import AgentId, TopicId
from fumehood.runtime.toolbox import GrantedSandbox, GrantedToolbox

T = TypeVar("T")


class RuntimeLink(Protocol):
    """The operations of a runtime for one agent and one message."""

    async def send(self, message: object, to: AgentId | str, deadline: Seconds | None, reply: type[T]) -> T: ...

    async def publish(self, message: object, topic: TopicId | str, deadline: Seconds | None) -> None: ...

    async def subscribe(self, topic: str) -> None: ...

    async def unsubscribe(self, topic: str) -> None: ...

    def open_sandbox(
        self, policy: Policy, session: bool, gated: bool, ids: Mapping[str, str]
    ) -> AbstractAsyncContextManager[GrantedSandbox]: ...

    def trail(self) -> Trail: ...

    def remaining(self) -> float: ...


@dataclass(frozen=True, slots=True)
class MessageContext:
    id: AgentId
    """The agent itself."""
    sender: AgentId | None
    """None is the application."""
    topic: TopicId | None
    """The topic of a publication; None is a direct message."""
    message_id: str
    _link: RuntimeLink = field(repr=False)

    @property
    def remaining(self) -> float:
        """Seconds until the message's deadline, at which its handler is cancelled."""
        return self._link.remaining()

    @overload
    async def send(self, message: object, *, to: AgentId | str, deadline: Seconds | None = None) -> object: ...

    @overload
    async def send(
        self, message: object, *, to: AgentId | str, deadline: Seconds | None = None, reply: type[T]
    ) -> T: ...

    @known_keywords()
    async def send(
        self, message: object, *, to: AgentId | str, deadline: Seconds | None = None, reply: type[object] = object
    ) -> object:
        """Send it and wait for the answer, at most `deadline`: seconds, or `2m`. `reply` is the expected type."""
        return await self._link.send(message, to, deadline, reply)

    @known_keywords()
    async def publish(self, message: object, *, topic: TopicId | str, deadline: Seconds | None = None) -> None:
        """Publishes a message to all subscribers with a handler for it. Returns when it is in their queues."""
        await self._link.publish(message, topic, deadline)

    async def subscribe(self, topic: str) -> None:
        """Subscribes this agent to a topic, or a pattern of topics, from every source."""
        await self._link.subscribe(topic)

    async def unsubscribe(self, topic: str) -> None:
        """Ends a subscription that was made with the same text."""
        await self._link.unsubscribe(topic)

    @known_keywords()
    def toolbox(self, policy: AnyPolicy, *, session: bool = False) -> AbstractAsyncContextManager[GrantedToolbox]:
        """`async with context.toolbox(policy) as toolbox`: the granted tools, in a sandbox under a granted policy."""
        return _only_toolbox(self.sandbox(policy, session=session))

    @known_keywords()
    def sandbox(
        self, policy: AnyPolicy, *, session: bool = False, gated: bool = False, ids: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[GrantedSandbox]:
        """A sandbox for an agent that makes several toolboxes in it, with its own filters and gate."""
        return self._link.open_sandbox(read_policy(policy), session, gated, ids or {})

    @property
    def trail(self) -> Trail:
        """Records of what else the agent does because of this message."""
        return self._link.trail()


@asynccontextmanager
async def _only_toolbox(sandbox: AbstractAsyncContextManager[GrantedSandbox]) -> AsyncIterator[GrantedToolbox]:
    async with sandbox as opened:
        yield opened.toolbox()
