"""The registry: registered types of agents, existing agents with their mailboxes, grants, subscriptions and states."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from fumehood.errors import DeliveryError, OverloadedError, UsageError
from fumehood.runtime.agent import Registration
from fumehood.runtime.grants import Grants
from fumehood.runtime.identity import AgentId, Pattern, TopicId
from fumehood.runtime.interface import RuntimeLimits
from fumehood.runtime.mailbox import Mailbox, WorkItem


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription of all agents of a type, with the topic's source as their key, or of one agent."""

    topic: Pattern
    agent_type: str
    key: str | None = None
    """None is the topic's source."""

    def recipient(self, topic: TopicId) -> AgentId | None:
        key = topic.source if self.key is None else self.key
        return AgentId(self.agent_type, key) if self.topic.covers(topic, key) else None


class Subscriptions:
    """All subscriptions of a runtime; those that agents make for themselves are limited in number."""

    def __init__(self, most_of_agents: int) -> None:
        self._most_of_agents = most_of_agents
        # In the order in which they were made, each once.
        self._all: dict[Subscription, None] = {}
        self._of_agents = 0

    async def add(self, subscription: Subscription) -> None:
        if subscription in self._all:
            return
        if subscription.key is not None:
            if self._of_agents >= self._most_of_agents:
                raise OverloadedError(
                    f"agents have {self._of_agents} subscriptions, and that is the limit (RuntimeLimits.subscriptions)"
                )
            self._of_agents += 1
        self._all[subscription] = None

    async def remove(self, subscription: Subscription) -> None:
        if subscription in self._all:
            del self._all[subscription]
            self._of_agents -= subscription.key is not None

    async def remove_of(self, agent: AgentId) -> None:
        """Removes those that the agent made for itself."""
        for each in [each for each in self._all if (each.agent_type, each.key) == (agent.type, agent.key)]:
            await self.remove(each)

    async def catch_up(self) -> None:
        """Returns when those that were made before the call are known here."""

    def recipients(self, topic: TopicId) -> Iterator[AgentId]:
        """Each once."""
        yield from dict.fromkeys(agent for each in self._all if (agent := each.recipient(topic)) is not None)


def unknown_type(type: str, known: Iterable[str]) -> DeliveryError:
    near = difflib.get_close_matches(type, list(known), n=1)
    guess = f"; did you mean {near[0]}?" if near else "; register it first"
    return DeliveryError(f"there is no agent type {type!r}{guess}")


NOTHING = Grants()


class Registry:
    """Types of agents by name, mailboxes by id."""

    def __init__(self, limits: RuntimeLimits, launch: Callable[[WorkItem], None]) -> None:
        """`launch` starts an item of work that has got a turn."""
        self._limits, self._launch = limits, launch
        self._registrations: dict[str, Registration] = {}
        self._mailboxes: dict[AgentId, Mailbox] = {}
        self._own_grants: dict[AgentId, Grants] = {}

    def register(self, registration: Registration) -> None:
        if registration.type in self._registrations:
            raise UsageError(f"there is an agent type {registration.type!r} already; choose another name")
        self._registrations[registration.type] = registration

    def unregister(self, type: str) -> None:
        self._registrations.pop(type, None)

    def registration(self, type: str) -> Registration:
        """DeliveryError if there is none."""
        found = self._registrations.get(type)
        if found is None:
            raise unknown_type(type, self._registrations)
        return found

    def takes(self, type: str, message: str) -> bool:
        found = self._registrations.get(type)
        return found is not None and message in found.takes

    def grants_of(self, agent: AgentId) -> Grants:
        """Its own if it has some, else those of its type; none if the type is not registered."""
        own = self._own_grants.get(agent)
        if own is not None:
            return own
        found = self._registrations.get(agent.type)
        return found.grants if found is not None else NOTHING

    async def grant(self, agent: AgentId | str, grants: Grants) -> None:
        if isinstance(agent, str):
            self._require(agent).grants = grants
        else:
            self._require(agent.type)
            self._own_grants[agent] = grants

    def mailbox(self, id: AgentId) -> Mailbox:
        """Creates it if needed. DeliveryError if the type is not registered or the limit of agents is reached."""
        found = self._mailboxes.get(id)
        if found is not None:
            return found
        registration = self.registration(id.type)
        if len(self._mailboxes) >= self._limits.agents:
            raise OverloadedError(
                f"{id} cannot be created: there are {len(self._mailboxes)} agents, and that is the limit "
                "(RuntimeLimits.agents)"
            )
        made = self._mailboxes[id] = Mailbox(id, registration, self._limits, self._launch)
        return made

    def find(self, id: AgentId) -> Mailbox | None:
        return self._mailboxes.get(id)

    def drop(self, mailbox: Mailbox) -> None:
        self._mailboxes.pop(mailbox.id, None)

    def mailboxes(self) -> Iterator[Mailbox]:
        return iter(tuple(self._mailboxes.values()))

    def _require(self, type: str) -> Registration:
        if type not in self._registrations:
            raise UsageError(f"there is no agent type {type!r} to grant anything to; register it first")
        return self._registrations[type]


_VERSION = 1


def as_state(states: Mapping[str, object]) -> dict[str, object]:
    return {"version": _VERSION, "agents": dict(states)}


def as_json(id: AgentId, state: Mapping[str, object]) -> dict[str, object]:
    """A deep copy, as JSON data."""
    try:
        return json.loads(json.dumps(dict(state), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the state of {id} is not valid JSON data: {error}") from None


def read_states(state: Mapping[str, object], registry: Registry) -> dict[AgentId, Mapping[str, object]]:
    agents = state.get("agents")
    if state.get("version") != _VERSION or not isinstance(agents, Mapping):
        raise UsageError(f"the state of the runtime is not valid: it must have version {_VERSION} and agents")
    loaded: dict[AgentId, Mapping[str, object]] = {}
    for text, own in cast("Mapping[str, object]", agents).items():
        id = AgentId.parse(text)
        _check_loadable(id, own, registry)
        loaded[id] = cast("Mapping[str, object]", own)
    return loaded


def _check_loadable(id: AgentId, state: object, registry: Registry) -> None:
    try:
        registry.registration(id.type)
    except DeliveryError as error:
        raise UsageError(f"the state of {id} cannot be loaded: {error}") from None
    if registry.find(id) is not None:
        raise UsageError(f"{id} exists already; load states before the first message")
    if not isinstance(state, Mapping):
        raise UsageError(f"the state of {id} is {type(state).__name__}, and must be a mapping")
