"""Where agents get their sandboxes from, with the tools in them and the trail of the audit log.

An agent that is used by itself opens its own. In a runtime (`runtime_agent`) it gets those of the runtime only: the
loop, the filters and the approvals are the same, and each call is judged by grants besides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from fumehood.audit.log import current_user
from fumehood.audit.trail import Trail
from fumehood.policy import Policy
from fumehood.remote.place import find_server
from fumehood.sandbox.audit import AuditChoice, find_trail
from fumehood.sandbox.interface import AnySandbox, Opener
from fumehood.sandbox.opener import LocalOpener
from fumehood.tools.calls import Gate
from fumehood.tools.filters import Pipeline
from fumehood.tools.tool import Tool
from fumehood.tools.toolbox import Toolbox


class ProvidedSandbox(Protocol):
    """An open sandbox."""

    @property
    def sandbox(self) -> AnySandbox: ...

    def toolbox(self, tools: Sequence[Tool], *, gate: Gate, filters: Pipeline, trail: Trail) -> Toolbox:
        """The toolbox for one turn of an agent that was made with these tools."""
        ...


class SandboxProvider(Protocol):
    def trail(self, wanted: AuditChoice) -> Trail:
        """`wanted` is what the agent was made with."""
        ...

    def opened(
        self, policy: Policy, *, session: bool, trail: Trail, wanted: Opener | None
    ) -> AbstractAsyncContextManager[ProvidedSandbox]:
        """NotGrantedError if the agent may not work under this policy here. `wanted` as for `trail`."""
        ...


@dataclass(frozen=True, slots=True)
class LocalSandbox:
    sandbox: AnySandbox

    def toolbox(self, tools: Sequence[Tool], *, gate: Gate, filters: Pipeline, trail: Trail) -> Toolbox:
        return Toolbox(self.sandbox, *tools, gate=gate, filters=filters, trail=trail)


class LocalSandboxProvider:
    def trail(self, wanted: AuditChoice) -> Trail:
        trail = find_trail(wanted)
        return replace(trail, who=trail.who or current_user())

    @asynccontextmanager
    async def opened(
        self, policy: Policy, *, session: bool, trail: Trail, wanted: Opener | None
    ) -> AsyncIterator[LocalSandbox]:
        opener = wanted or find_server() or LocalOpener(audit=trail if trail.is_on else False)
        async with opener.sandbox(policy, session=session, gated=True) as box:
            yield LocalSandbox(box)


LOCAL = LocalSandboxProvider()
