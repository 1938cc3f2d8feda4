"""The state of a runtime as JSON data: that of each of its agents, checked before any of it is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from fumehood.errors import DeliveryError, UsageError
from fumehood.runtime.census import Census
from fumehood.runtime.identity import AgentId

_VERSION = 1


def written(states: Mapping[str, object]) -> dict[str, object]:
    return {"version": _VERSION, "agents": dict(states)}


def as_json(id: AgentId, state: Mapping[str, object]) -> dict[str, object]:
    """A copy that shares nothing with the agent."""
    try:
        return json.loads(json.dumps(dict(state), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the state of {id} is nothing that JSON can hold: {error}") from None


def read_states(state: Mapping[str, object], census: Census) -> dict[AgentId, Mapping[str, object]]:
    agents = state.get("agents")
    if state.get("version") != _VERSION or not isinstance(agents, Mapping):
        raise UsageError(f"this is no state of a runtime of version {_VERSION}")
    loaded: dict[AgentId, Mapping[str, object]] = {}
    for text, own in cast("Mapping[str, object]", agents).items():
        id = AgentId.parse(text)
        _check_loadable(id, own, census)
        loaded[id] = cast("Mapping[str, object]", own)
    return loaded


def _check_loadable(id: AgentId, state: object, census: Census) -> None:
    try:
        census.registration(id.type)
    except DeliveryError as error:
        raise UsageError(f"the state of {id} cannot be loaded: {error}") from None
    if census.find(id) is not None:
        raise UsageError(f"{id} exists already; load states before the first message")
    if not isinstance(state, Mapping):
        raise UsageError(f"the state of {id} is {type(state).__name__}, and must be a mapping")
