"""Where others have a say: before a call is carried out, and after.

Approvals wait here for a person, and the audit log writes down what happened. A gate that raises stops the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fumehood.tools.calls import call_digest
from fumehood.tools.result import ToolResult
from fumehood.tools.tool import Risk


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call, checked and complete: exactly this is carried out."""

    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    """As JSON has them, with every default filled in."""
    risk: Risk
    policy_digest: str

    @property
    def digest(self) -> str:
        """What an answer is bound to: the tool, its exact arguments, the policy. Not the call: the same is the same."""
        return call_digest(self.tool, self.arguments, self.policy_digest)


@dataclass(frozen=True, slots=True)
class Answer:
    """To a call. Other arguments than those that were asked about make another call, with another digest."""

    allowed: bool
    reason: str = ""
    """For the model, when it is not."""
    arguments: Mapping[str, Any] | None = None
    """In place of the call's, when somebody edited them."""


class Gate(Protocol):
    async def admit(self, call: ToolCall) -> Answer:
        """Whether it may be carried out. May take as long as a person does."""
        ...

    async def finished(self, call: ToolCall, result: ToolResult) -> None:
        """It was carried out, or refused."""
        ...
