"""The registry and the subscriptions of all processes of a space, as the directory has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache

from fumehood.errors import DeliveryError, OverloadedError, UsageError
from fumehood.runtime.grants import Grants
from fumehood.runtime.identity import AgentId, Pattern, TopicId
from fumehood.runtime.interface import RuntimeLimits
from fumehood.runtime.mailbox import WorkItem
from fumehood.runtime.nats.directory import Directory, GrantsEntry, TypeEntry
from fumehood.runtime.registry import NOTHING, Registry, Subscription, Subscriptions

_parsed = lru_cache(1000)(Pattern.parse)


class SharedRegistry(Registry):
    """Types, mailboxes and handlers of this process, with what the directory has of all types."""

    def __init__(self, limits: RuntimeLimits, launch: Callable[[WorkItem], None], directory: Directory) -> None:
        super().__init__(limits, launch)
        self._directory = directory

    def takes(self, type: str, message: str) -> bool:
        entry = self._directory.type(type)
        return entry is not None and message in entry.takes

    def grants_of(self, agent: AgentId) -> Grants:
        entry = self._directory.grants(agent.type)
        return NOTHING if entry is None else entry.agents.get(agent.key, entry.type)

    async def grant(self, agent: AgentId | str, grants: Grants) -> None:
        type = agent if isinstance(agent, str) else agent.type
        await self._directory.refresh_type(type)

        def change(entry: GrantsEntry | None) -> GrantsEntry:
            if entry is None:
                raise UsageError(f"there is no agent type {type!r} to grant anything to; register it first")
            if isinstance(agent, str):
                return entry.model_copy(update={"type": grants})
            return entry.model_copy(update={"agents": {**entry.agents, agent.key: grants}})

        await self._directory.change_grants(type, change)


class SharedSubscriptions(Subscriptions):
    """Those of types come into the directory with the types, those of agents through this."""

    def __init__(self, most_of_agents: int, directory: Directory) -> None:
        super().__init__(most_of_agents)
        self._most, self._directory = most_of_agents, directory

    async def add(self, subscription: Subscription) -> None:
        if subscription.key is None:
            return
        wanted = (subscription.key, str(subscription.topic))

        def change(entry: TypeEntry | None) -> TypeEntry | None:
            if entry is None or wanted in entry.own_subscriptions:
                return None
            count = sum(len(each.own_subscriptions) for _, each in self._directory.types())
            if count >= self._most:
                raise OverloadedError(
                    f"agents have {count} subscriptions, and that is the limit (RuntimeLimits.subscriptions)"
                )
            return entry.model_copy(update={"own_subscriptions": (*entry.own_subscriptions, wanted)})

        await self._directory.change_type(subscription.agent_type, change)

    async def remove(self, subscription: Subscription) -> None:
        await self._keep(subscription.agent_type, lambda each: each != (subscription.key, str(subscription.topic)))

    async def remove_of(self, agent: AgentId) -> None:
        # Without NATS they stay, and the next publication finds the agent at its new home.
        with suppress(DeliveryError):
            await self._keep(agent.type, lambda each: each[0] != agent.key)

    async def _keep(self, type: str, is_kept: Callable[[tuple[str, str]], bool]) -> None:
        def change(entry: TypeEntry | None) -> TypeEntry | None:
            if entry is None or all(map(is_kept, entry.own_subscriptions)):
                return None
            return entry.model_copy(update={"own_subscriptions": tuple(filter(is_kept, entry.own_subscriptions))})

        await self._directory.change_type(type, change)

    async def catch_up(self) -> None:
        # While NATS is away the copy is all there is, and the publication waits until it can be stored.
        with suppress(DeliveryError):
            await self._directory.catch_up()

    def recipients(self, topic: TopicId) -> Iterator[AgentId]:
        found = (subscription.recipient(topic) for subscription in self._all_of_types())
        yield from dict.fromkeys(agent for agent in found if agent is not None)

    def _all_of_types(self) -> Iterator[Subscription]:
        for type, entry in self._directory.types():
            for text in entry.subscriptions:
                yield Subscription(_parsed(text), type)
            for key, text in entry.own_subscriptions:
                yield Subscription(_parsed(text), type, key)
