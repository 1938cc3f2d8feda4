"""Who there is: the types of agents that are registered, the agents that exist, and what each of them is granted."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator

from fumehood.errors import DeliveryError, OverloadedError, UsageError
from fumehood.runtime.grants import Grants
from fumehood.runtime.identity import AgentId
from fumehood.runtime.limits import Limits
from fumehood.runtime.residents import Registration, Resident, Work

NOTHING = Grants()


class Census:
    def __init__(self, limits: Limits, launch: Callable[[Work], None]) -> None:
        """`launch` begins work that an agent has a turn for."""
        self._limits, self._launch = limits, launch
        self._registrations: dict[str, Registration] = {}
        self._residents: dict[AgentId, Resident] = {}
        self._own_grants: dict[AgentId, Grants] = {}

    def register(self, registration: Registration) -> None:
        if registration.type in self._registrations:
            raise UsageError(f"there is an agent type {registration.type!r} already; choose another name")
        self._registrations[registration.type] = registration

    def registration(self, type: str) -> Registration:
        """DeliveryError if there is none."""
        found = self._registrations.get(type)
        if found is None:
            near = difflib.get_close_matches(type, self._registrations, n=1)
            guess = f"; did you mean {near[0]}?" if near else "; register it first"
            raise DeliveryError(f"there is no agent type {type!r}{guess}")
        return found

    def takes(self, type: str, message: str) -> bool:
        found = self._registrations.get(type)
        return found is not None and message in found.takes

    def grants_of(self, agent: AgentId) -> Grants:
        """Its own if it has some, else those of its type; an agent that nobody registered has none."""
        own = self._own_grants.get(agent)
        if own is not None:
            return own
        found = self._registrations.get(agent.type)
        return found.grants if found is not None else NOTHING

    def grant(self, agent: AgentId | str, grants: Grants) -> None:
        if isinstance(agent, str):
            self._require(agent).grants = grants
        else:
            self._require(agent.type)
            self._own_grants[agent] = grants

    def resident(self, id: AgentId) -> Resident:
        """DeliveryError if there is no such type, or no room for another agent."""
        found = self._residents.get(id)
        if found is not None:
            return found
        registration = self.registration(id.type)
        if len(self._residents) >= self._limits.agents:
            raise OverloadedError(
                f"{id} cannot be made: there are {len(self._residents)} agents, and that is the limit (Limits.agents)"
            )
        made = self._residents[id] = Resident(id, registration, self._limits, self._launch)
        return made

    def find(self, id: AgentId) -> Resident | None:
        return self._residents.get(id)

    def drop(self, resident: Resident) -> None:
        self._residents.pop(resident.id, None)

    def residents(self) -> Iterator[Resident]:
        return iter(tuple(self._residents.values()))

    def _require(self, type: str) -> Registration:
        if type not in self._registrations:
            raise UsageError(f"there is no agent type {type!r} that could be granted anything; register it first")
        return self._registrations[type]
