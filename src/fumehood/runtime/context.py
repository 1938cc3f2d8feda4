"""What an agent has of the outside while it handles one message: bound to who it is, and over when the message is.

The names are for the agent to read. Who sends is decided by the `Line` behind it, which the runtime made for that agent
alone.
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
from fumehood.runtime.toolboxes import GrantedRoom, GrantedToolbox

T = TypeVar("T")


class Line(Protocol):
    """One agent's way into its runtime, for one message."""

    async def send(self, message: object, to: AgentId | str, deadline: Seconds | None, reply: type[T]) -> T: ...

    async def publish(self, message: object, topic: TopicId | str, deadline: Seconds | None) -> None: ...

    async def subscribe(self, topic: str) -> None: ...

    async def unsubscribe(self, topic: str) -> None: ...

    def open_room(
        self, policy: Policy, session: bool, gated: bool, ids: Mapping[str, str]
    ) -> AbstractAsyncContextManager[GrantedRoom]: ...

    def trail(self) -> Trail: ...

    def remaining(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Context:
    id: AgentId
    """Who the agent is."""
    sender: AgentId | None
    """Who sent the message; None is the application."""
    topic: TopicId | None
    """Where it was published; None is a direct message."""
    message_id: str
    _line: Line = field(repr=False)

    @property
    def remaining(self) -> float:
        """Seconds until the message has to be handled; what is still under way then is cancelled."""
        return self._line.remaining()

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
        """Send it and wait for the answer, at most `deadline`: seconds, or `2m`. `reply` is the type it has to have."""
        return await self._line.send(message, to, deadline, reply)

    @known_keywords()
    async def publish(self, message: object, *, topic: TopicId | str, deadline: Seconds | None = None) -> None:
        """To all that are subscribed and have a handler for it. Returns when it waits in their queues."""
        await self._line.publish(message, topic, deadline)

    async def subscribe(self, topic: str) -> None:
        """From now on this very agent gets what is published there, whatever its source; also as a pattern."""
        await self._line.subscribe(topic)

    async def unsubscribe(self, topic: str) -> None:
        """The end of a subscription that was made with the same text."""
        await self._line.unsubscribe(topic)

    @known_keywords()
    def toolbox(self, policy: AnyPolicy, *, session: bool = False) -> AbstractAsyncContextManager[GrantedToolbox]:
        """`async with context.toolbox(policy) as toolbox`: the granted tools, in a sandbox under a granted policy."""
        return _only_toolbox(self.room(policy, session=session))

    @known_keywords()
    def room(
        self, policy: AnyPolicy, *, session: bool = False, gated: bool = False, ids: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[GrantedRoom]:
        """As `toolbox`, for an agent that makes several in one sandbox, with filters and a gate of its own."""
        return self._line.open_room(read_policy(policy), session, gated, ids or {})

    @property
    def trail(self) -> Trail:
        """Where the agent records what else it does because of this message."""
        return self._line.trail()


@asynccontextmanager
async def _only_toolbox(room: AbstractAsyncContextManager[GrantedRoom]) -> AsyncIterator[GrantedToolbox]:
    async with room as opened:
        yield opened.toolbox()
