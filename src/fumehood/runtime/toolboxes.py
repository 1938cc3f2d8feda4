"""Tools of an agent: those that are granted, in a sandbox under a policy that is granted, judged at each call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fumehood.audit import Trail
from fumehood.policy import Policy
from fumehood.runtime.events import GrantDenied
from fumehood.runtime.grants import Grants
from fumehood.runtime.identity import AgentId
from fumehood.sandbox import Sandbox
from fumehood.tools import Gate, Tool, Toolbox, ToolResult, ToolSchema, ToolStatus

MakeGate = Callable[[AgentId, Sandbox], Gate]
"""Who is asked about the calls of this agent in this sandbox, such as `Approvals`."""


class GrantedToolbox(Toolbox):
    """As a toolbox, for one agent. What it is not granted it cannot see and not call."""

    def __init__(
        self, agent: AgentId, grants: Callable[[], Grants], sandbox: Sandbox, tools: Sequence[Tool], gate: Gate | None
    ) -> None:
        super().__init__(sandbox, *tools, gate=gate)
        self._agent, self._grants, self._box = agent, grants, sandbox

    @property
    def sandbox(self) -> Sandbox:
        """Where calls are carried out; its files are the agent's to read and write."""
        return self._box

    def schemas(self) -> list[ToolSchema]:
        grants = self._grants()
        return [schema for schema in super().schemas() if grants.may_call(schema["name"])]

    async def call(self, name: str, arguments: Mapping[str, Any] | str | bytes) -> ToolResult:
        grants = self._grants()
        if not grants.may_call(name):
            return await self._denied("call the tool", name, f"has no grant for the tool {name[:80]!r}")
        if not grants.may_open(self._box.policy):
            # Taken away since the sandbox was opened, or its policy was changed.
            digest = self._box.policy.digest
            return await self._denied("use a sandbox under", digest, "has no grant for this policy any more")
        return await super().call(name, arguments)

    async def _denied(self, action: str, target: str, why: str) -> ToolResult:
        await self._box.trail.write(GrantDenied(action, target[:200]))
        granted = ", ".join(schema["name"] for schema in self.schemas()) or "none"
        return ToolResult(f"Denied: {self._agent} {why}. Its tools are: {granted}.", ToolStatus.DENIED)


@asynccontextmanager
async def open_toolbox(
    agent: AgentId,
    grants: Callable[[], Grants],
    policy: Policy,
    *,
    session: bool,
    tools: Sequence[Tool],
    make_gate: MakeGate | None,
    trail: Trail,
) -> AsyncIterator[GrantedToolbox]:
    async with Sandbox(policy, session=session, audit=trail, gated=make_gate is not None) as box:
        yield GrantedToolbox(agent, grants, box, tools, make_gate(agent, box) if make_gate else None)
