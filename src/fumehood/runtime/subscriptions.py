"""Who wants what is published: for all agents of a type, under the source as their key, or for one agent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fumehood.errors import OverloadedError
from fumehood.runtime.identity import AgentId, TopicId
from fumehood.runtime.patterns import Pattern


@dataclass(frozen=True, slots=True)
class Subscription:
    topic: Pattern
    agent_type: str
    key: str | None = None
    """None is the topic's source."""

    def recipient(self, topic: TopicId) -> AgentId | None:
        key = topic.source if self.key is None else self.key
        return AgentId(self.agent_type, key) if self.topic.covers(topic, key) else None


class Subscriptions:
    def __init__(self, most_of_agents: int) -> None:
        self._most_of_agents = most_of_agents
        # In the order in which they were made, each once.
        self._all: dict[Subscription, None] = {}
        self._of_agents = 0

    def add(self, subscription: Subscription) -> None:
        if subscription in self._all:
            return
        if subscription.key is not None:
            if self._of_agents >= self._most_of_agents:
                raise OverloadedError(
                    f"agents have {self._of_agents} subscriptions, and that is the limit (Limits.subscriptions)"
                )
            self._of_agents += 1
        self._all[subscription] = None

    def remove(self, subscription: Subscription) -> None:
        if subscription in self._all:
            del self._all[subscription]
            self._of_agents -= subscription.key is not None

    def remove_of(self, agent: AgentId) -> None:
        """Those that it made for itself."""
        for each in [each for each in self._all if (each.agent_type, each.key) == (agent.type, agent.key)]:
            self.remove(each)

    def recipients(self, topic: TopicId) -> Iterator[AgentId]:
        """Each once."""
        yield from dict.fromkeys(agent for each in self._all if (agent := each.recipient(topic)) is not None)
