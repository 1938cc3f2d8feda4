"""A toolbox with a sandbox of its own, for frameworks that take tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from fumehood.integrations.approvals import FrameworkApprovals
from fumehood.policy import AnyPolicy, Policy, read_policy
from fumehood.sandbox.async_sandbox import AsyncSandbox
from fumehood.tools import STANDARD, Tool, Toolbox, ToolCall


class FrameworkToolbox(Toolbox):
    """A toolbox whose approvals come from a framework."""

    def __init__(self, sandbox: AsyncSandbox, tools: Sequence[Tool], approvals: FrameworkApprovals) -> None:
        super().__init__(sandbox, *tools, gate=approvals)
        self.sandbox, self.approvals = sandbox, approvals


@asynccontextmanager
async def open_toolbox(
    policy: AnyPolicy | None,
    tools: Sequence[Tool] = STANDARD,
    *,
    framework: str,
    session: bool = False,
    stop: Callable[[ToolCall], Exception] | None = None,
) -> AsyncIterator[FrameworkToolbox]:
    """Without a policy nothing is allowed. `stop` makes the exception that stops the framework for an approval."""
    async with AsyncSandbox(read_policy(policy) or Policy(), session=session, gated=True, keep_tmp=True) as box:
        yield FrameworkToolbox(box, tools, FrameworkApprovals(box, framework, stop))
