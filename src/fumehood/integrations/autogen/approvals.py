"""Approvals of code blocks: where the policy asks for one, AutoGen's `approval_func` is asked, and its answer recorded.

The function is the one that AutoGen's own agents take. An agent asks its own about all blocks of a message together;
this one is asked about each block that the policy's `approvals` are about, and a yes is for that block alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import anyio.to_thread

from fumehood.integrations.autogen.blocks import BlockScript
from fumehood.sandbox.interface import AnySandbox
from fumehood.tools.approvals import ApprovalAnswer, ApprovalRequest, Approvals
from fumehood.tools.calls import ToolCall

_SHELLS = ("sh", "bash")
_BY = "AutoGen's approval_func"


class Response(Protocol):
    """AutoGen's `ApprovalResponse`."""

    approved: bool
    reason: str


ApprovalFunction = Callable[[Any], Response | Awaitable[Response]]
"""AutoGen's `ApprovalFuncType`: takes an `ApprovalRequest` with `code` and `context`; may block, or be async."""


@dataclass
class BlockRequest:
    """What AutoGen's `ApprovalRequest` is, where only its core is installed."""

    code: str
    context: list[object] = field(default_factory=list[object])


class BlockApprovals:
    """The gate of one executor's blocks."""

    def __init__(self, box: AnySandbox, function: ApprovalFunction) -> None:
        self._box, self._function = box, function
        self._approvals = Approvals(lambda: box.policy, ask=self._ask, trail=box.trail)

    async def approve(self, script: BlockScript) -> BlockScript:
        """The block that may run now, once; NotApprovedError without a yes."""
        call = as_call(script, self._box.policy.digest)
        approved = await self._approvals.approve(call)
        if approved.digest == call.digest:
            return script
        return replace(script, source=approved.text.encode("utf-8", "surrogatepass"))

    async def _ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """What the function raises is a no, and so is an answer that does not say `True`."""
        asked = _request(request.call.text)
        if inspect.iscoroutinefunction(self._function):
            answer = await cast("Awaitable[Response]", self._function(asked))
        else:
            # It may wait for a person at the terminal; the event loop goes on.
            found = await anyio.to_thread.run_sync(self._function, asked, abandon_on_cancel=True)
            answer = await found if inspect.isawaitable(found) else found
        return ApprovalAnswer(approved=answer.approved is True, reason=str(answer.reason), by=_BY)


def as_call(script: BlockScript, policy_digest: str) -> ToolCall:
    """Everything that makes a difference to what the block does."""
    language = script.language.name
    tool, name = ("shell", "command") if language in _SHELLS else (language, "code")
    source = script.source.decode("utf-8", "surrogatepass")
    arguments: dict[str, object] = {name: source, "name": script.path}
    if tool != language:
        arguments["language"] = language
    return ToolCall(tool, arguments, policy_digest, code=name, language=language)


def _request(code: str) -> object:
    try:
        from autogen_agentchat.agents import ApprovalRequest as TheirRequest
    except ImportError:
        return BlockRequest(code)
    return TheirRequest(code=code, context=[])
