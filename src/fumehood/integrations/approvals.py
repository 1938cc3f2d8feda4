"""Approvals that a framework asks for.

The policy decides which calls need an approval. The framework stops at such a call, shows it to a person, and makes it
again with the answer. That answer is recorded and used once, like every other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from fumehood.sandbox.async_sandbox import AsyncSandbox
from fumehood.tools import GateAnswer, ToolCall, ToolResult
from fumehood.tools import approvals as asking

_REFUSAL = "a person has to approve it, and none has"


class FrameworkApprovals:
    """A gate. `stop` makes the exception by which the framework learns to ask; without it such a call is denied."""

    def __init__(
        self, sandbox: AsyncSandbox, framework: str, stop: Callable[[ToolCall], Exception] | None = None
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
