"""A toolbox with a sandbox of its own, for frameworks that take tools.

Where a framework asks for approvals itself, the policy decides which calls need one. The framework stops at such a
call, shows it to a person, and makes it again with the answer. That answer is recorded and used once, like every other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

from fumehood.policy import AnyPolicy, Policy, read_policy
from fumehood.remote.place import USUAL
from fumehood.sandbox.interface import AnySandbox, Opener
from fumehood.tools import STANDARD, GateAnswer, Tool, Toolbox, ToolCall, ToolResult
from fumehood.tools import approvals as asking

_REFUSAL = "a person has to approve it, and none has"


class FrameworkApprovals:
    """A gate. `stop` makes the exception by which the framework learns to ask; without it such a call is denied."""

    def __init__(
        self, sandbox: AnySandbox, framework: str, stop: Callable[[ToolCall], Exception] | None = None
    ) -> None:
        self._approvals = asking.Approvals(lambda: sandbox.policy, ask=self._pass_on, trail=sandbox.trail)
        self._framework = framework
        self._stop = stop
        self._is_given: ContextVar[bool] = ContextVar("approval_given", default=False)

    @contextmanager
    def given(self, is_given: bool) -> Iterator[None]:
        """Whether the framework has an approval for the call that is made in the block."""
        token = self._is_given.set(is_given)
        try:
            yield
        finally:
            self._is_given.reset(token)

    def is_needed(self, call: ToolCall) -> bool:
        return self._approvals.ask_for(call)

    async def admit(self, call: ToolCall) -> GateAnswer:
        if self._is_given.get() or not self.is_needed(call):
            return await self._approvals.admit(call)
        if self._stop is not None:
            raise self._stop(call)
        return GateAnswer(allowed=False, reason=_REFUSAL)

    async def finished(self, call: ToolCall, result: ToolResult) -> None:
        await self._approvals.finished(call, result)

    async def _pass_on(self, request: asking.ApprovalRequest) -> asking.ApprovalAnswer:
        """Only reached in a block in which the approval is given."""
        return asking.ApprovalAnswer(approved=self._is_given.get(), by=self._framework)


class FrameworkToolbox(Toolbox):
    """A toolbox whose approvals come from a framework."""

    def __init__(self, sandbox: AnySandbox, tools: Sequence[Tool], approvals: FrameworkApprovals) -> None:
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
    sandboxes: Opener = USUAL,
) -> AsyncIterator[FrameworkToolbox]:
    """Without a policy nothing is allowed. `stop` makes the exception that stops the framework for an approval."""
    given = read_policy(policy) or Policy()
    async with sandboxes.sandbox(given, session=session, gated=True, keep_tmp=True) as box:
        yield FrameworkToolbox(box, tools, FrameworkApprovals(box, framework, stop))
