"""A toolbox with a sandbox of its own, for frameworks that take tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from fumehood.integrations.consent import Consent
from fumehood.policy import AnyPolicy, Policy, read_policy
from fumehood.sandbox.sandbox import AsyncSandbox
from fumehood.tools import STANDARD, Tool, Toolbox, ToolCall


class AskingToolbox(Toolbox):
    """One whose approvals come from the framework around it."""

    def __init__(self, sandbox: AsyncSandbox, tools: Sequence[Tool], consent: Consent) -> None:
        super().__init__(sandbox, *tools, gate=consent)
        self.sandbox, self.consent = sandbox, consent


@asynccontextmanager
async def open_toolbox(
    policy: AnyPolicy | None,
    tools: Sequence[Tool] = STANDARD,
    *,
    framework: str,
    session: bool = False,
    stop: Callable[[ToolCall], Exception] | None = None,
) -> AsyncIterator[AskingToolbox]:
    """Without a policy nothing is allowed; approvals are asked for by the framework, which `stop` stops."""
    async with AsyncSandbox(read_policy(policy) or Policy(), session=session, gated=True, keep_tmp=True) as box:
        yield AskingToolbox(box, tools, Consent(box, framework, stop))
