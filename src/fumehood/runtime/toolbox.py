"""Tools of an agent: the granted ones, in a sandbox under a granted policy; grants are checked at each call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from fumehood.audit import Trail
from fumehood.errors import UsageError
from fumehood.keywords import known_keywords
from fumehood.policy import Policy
from fumehood.remote.place import find_server
from fumehood.runtime.audit import GrantDenied
from fumehood.runtime.grants import Grants
from fumehood.runtime.identity import AgentId
from fumehood.sandbox.interface import AnySandbox, Opener
from fumehood.sandbox.opener import LocalOpener
from fumehood.tools import Gate, Tool, Toolbox, ToolResult, ToolSchema, ToolStatus
from fumehood.tools.filters import Pipeline
from fumehood.tools.tool import Watch

MakeGate = Callable[[AgentId, AnySandbox], Gate]
"""Creates the gate that decides about the calls of this agent in this sandbox, such as `Approvals`."""

_MOST_SHOWN = 200


class GrantedToolbox(Toolbox):
    """A toolbox of one agent, which can neither see nor call tools that are not granted."""

    def __init__(
        self,
        agent: AgentId,
        grants: Callable[[], Grants],
        sandbox: AnySandbox,
        tools: Sequence[Tool],
        *,
        gate: Gate | None,
        filters: Pipeline | None,
        trail: Trail,
    ) -> None:
        super().__init__(sandbox, *tools, gate=gate, filters=filters, trail=trail)
        self._agent, self._grants, self._box, self._records = agent, grants, sandbox, trail

    @property
    def sandbox(self) -> AnySandbox:
        """The sandbox of the calls; the agent may read and write its files."""
        return self._box

    def schemas(self) -> list[ToolSchema]:
        grants = self._grants()
        return [schema for schema in super().schemas() if grants.may_call(schema["name"])]

    async def call(
        self, name: str, arguments: Mapping[str, Any] | str | bytes, *, watch: Watch | None = None
    ) -> ToolResult:
        grants = self._grants()
        if not grants.may_call(name):
            return await self._denied("call the tool", name, f"has no grant for the tool {name[:80]!r}")
        if not grants.may_open(self._box.policy):
            # The grant was removed since the sandbox was opened, or its policy was changed.
            digest = self._box.policy.digest
            return await self._denied("use a sandbox under", digest, "has no grant for this policy any more")
        return await super().call(name, arguments, watch=watch)

    async def _denied(self, action: str, target: str, why: str) -> ToolResult:
        # A model may write a name that UTF-8 cannot encode, such as half of a surrogate pair.
        shown = target[:_MOST_SHOWN].encode("utf-8", "backslashreplace").decode()
        await self._records.write(GrantDenied(action, shown))
        granted = ", ".join(schema["name"] for schema in self.schemas()) or "none"
        return ToolResult(f"Denied: {self._agent} {why}. Its tools are: {granted}.", ToolStatus.DENIED)


class GrantedSandbox:
    """A sandbox that one agent has opened for one message, and the tools that it may use there."""

    def __init__(
        self,
        agent: AgentId,
        grants: Callable[[], Grants],
        sandbox: AnySandbox,
        tools: Sequence[Tool],
        gate: Gate | None,
        trail: Trail,
    ) -> None:
        self._agent, self._grants, self._tools, self._gate = agent, grants, tuple(tools), gate
        self.sandbox = sandbox
        # One that is elsewhere has its log there, and the runtime has this one.
        self._trail = sandbox.trail if sandbox.trail.is_on else trail

    @known_keywords()
    def toolbox(
        self,
        tools: Sequence[Tool] | None = None,
        *,
        own: Sequence[Tool] = (),
        gate: Gate | None = None,
        filters: Pipeline | None = None,
        ids: Mapping[str, str] | None = None,
    ) -> GrantedToolbox:
        """A toolbox with all tools that the runtime has for this agent, or with the given ones of them.

        `own` are tools that the agent itself implements, such as a handoff; they need grants as all others do. If the
        runtime has a gate, `gate` is ignored. `ids` are added to the records and cannot replace those of the runtime.
        """
        for each in tools or ():
            if each not in self._tools:
                raise UsageError(
                    f"{self._agent} has a tool {each.name!r} that its runtime does not know; pass it to the runtime, "
                    "or to the agent's type: register(tools=[...])"
                )
        for each in own:
            if any(each.name == known.name for known in self._tools):
                raise UsageError(f"the runtime has a tool {each.name!r} already; {self._agent} cannot add another")
        trail = self._trail
        return GrantedToolbox(
            self._agent,
            self._grants,
            self.sandbox,
            (*(self._tools if tools is None else tools), *own),
            gate=self._gate or gate,
            filters=filters,
            trail=replace(trail, ids={**(ids or {}), **trail.ids}),
        )


@asynccontextmanager
async def open_sandbox(
    agent: AgentId,
    grants: Callable[[], Grants],
    policy: Policy,
    *,
    session: bool,
    gated: bool,
    tools: Sequence[Tool],
    make_gate: MakeGate | None,
    trail: Trail,
    sandboxes: Opener | None = None,
) -> AsyncIterator[GrantedSandbox]:
    """`gated` declares that the agent's toolboxes have a gate; a toolbox without one raises an error then."""
    opener = sandboxes or find_server() or LocalOpener(audit=trail)
    async with opener.sandbox(policy, session=session, gated=gated or make_gate is not None) as box:
        yield GrantedSandbox(agent, grants, box, tools, make_gate(agent, box) if make_gate else None, trail)
