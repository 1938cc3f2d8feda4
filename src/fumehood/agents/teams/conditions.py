"""When a team has done enough: conditions that can be combined, `MaxMessages(20) | TextMention("APPROVED")`.

A condition looks at all that happened in the task so far and keeps nothing of its own, so that it means the same after
a pause, and `&` is met when both have been met at some time.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from fumehood.agents.budget import Budget, Usage, UsageMeter
from fumehood.agents.handoff import HANDOFF_TOOL
from fumehood.agents.messages import AssistantMessage, ChatMessage, ToolMessage, UserMessage
from fumehood.errors import UsageError
from fumehood.keywords import known_fields, known_keywords
from fumehood.policy import read_seconds
from fumehood.policy.arguments import Seconds
from fumehood.tools.result import ToolStatus


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """The progress of one task, which termination conditions check."""

    said: Sequence[UserMessage]
    """The messages of participants, one for each turn."""
    messages: Sequence[ChatMessage]
    """Everything, calls and results included."""
    usage: Usage


class TerminationCondition(ABC):
    @abstractmethod
    def met(self, progress: TaskProgress) -> str | None:
        """Why it is met, in words; None as long as it is not."""

    def __or__(self, other: TerminationCondition) -> TerminationCondition:
        return _Either(self, other)

    def __and__(self, other: TerminationCondition) -> TerminationCondition:
        return _Both(self, other)


@dataclass(frozen=True, slots=True)
class _Either(TerminationCondition):
    first: TerminationCondition
    second: TerminationCondition

    def met(self, progress: TaskProgress) -> str | None:
        return self.first.met(progress) or self.second.met(progress)


@dataclass(frozen=True, slots=True)
class _Both(TerminationCondition):
    first: TerminationCondition
    second: TerminationCondition

    def met(self, progress: TaskProgress) -> str | None:
        first, second = self.first.met(progress), self.second.met(progress)
        return f"{first}, and {second}" if first and second else None


@known_fields
@dataclass(frozen=True, slots=True)
class MaxMessages(TerminationCondition):
    """Stops after a number of turns with a message."""

    most: int

    def __post_init__(self) -> None:
        if self.most < 1:
            raise UsageError(f"MaxMessages needs a number of at least 1, not {self.most}")

    def met(self, progress: TaskProgress) -> str | None:
        return f"{self.most} messages were said" if len(progress.said) >= self.most else None


@known_fields
@dataclass(frozen=True, slots=True)
class TextMention(TerminationCondition):
    """A participant, or one of those named, said this text; case counts."""

    text: str
    by: Collection[str] | None = None

    def __post_init__(self) -> None:
        if not self.text:
            raise UsageError("TextMention needs a text; the empty one is in every message")

    def met(self, progress: TaskProgress) -> str | None:
        for message in progress.messages:
            is_theirs = isinstance(message, AssistantMessage) and (self.by is None or message.source in self.by)
            if is_theirs and self.text in message.text:
                return f"{message.source} said {self.text!r}"
        return None


@dataclass(frozen=True, slots=True, init=False)
class Timeout(TerminationCondition):
    """Stops after a time, in seconds or as a text such as "2m"; checked between turns.

    A budget's `seconds` ends a turn in the middle.
    """

    seconds: float

    @known_keywords()
    def __init__(self, seconds: Seconds) -> None:
        object.__setattr__(self, "seconds", read_seconds(seconds, "Timeout"))

    def met(self, progress: TaskProgress) -> str | None:
        return f"{self.seconds:g} seconds are over" if progress.usage.seconds >= self.seconds else None


@known_fields
@dataclass(frozen=True, slots=True)
class Spent(TerminationCondition):
    """One of these limits is reached; looked at between turns, unlike the budget of the team itself."""

    budget: Budget

    def met(self, progress: TaskProgress) -> str | None:
        spent = UsageMeter(self.budget, before=progress.usage).spent(next_turn=True, next_call=True)
        return spent[1] if spent else None


@dataclass(slots=True)
class External(TerminationCondition):
    """`set` was called, from anywhere; the turn under way is finished. `cancel` does not wait for that."""

    _is_set: bool = field(default=False, init=False)

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def met(self, progress: TaskProgress) -> str | None:
        return "External.set was called" if self._is_set else None


@known_fields
@dataclass(frozen=True, slots=True)
class HandedTo(TerminationCondition):
    """The task was handed over to this name."""

    target: str

    def met(self, progress: TaskProgress) -> str | None:
        return f"it was handed to {self.target}" if self.target in _targets(progress.messages) else None


@known_fields
@dataclass(frozen=True, slots=True)
class ToolUsed(TerminationCondition):
    """A call of this tool was carried out, whether it succeeded or not; one that was denied does not count."""

    tool: str

    def met(self, progress: TaskProgress) -> str | None:
        done = (ToolStatus.SUCCESS, ToolStatus.ERROR)
        used = any(
            isinstance(message, ToolMessage) and message.tool == self.tool and message.status in done
            for message in progress.messages
        )
        return f"{self.tool} was called" if used else None


def _targets(messages: Sequence[ChatMessage]) -> Iterator[str]:
    carried_out = {
        message.call_id
        for message in messages
        if isinstance(message, ToolMessage) and message.tool == HANDOFF_TOOL and message.status is ToolStatus.SUCCESS
    }
    for message in messages:
        for call in message.calls if isinstance(message, AssistantMessage) else ():
            if call.call_id in carried_out:
                yield str(cast("dict[str, Any]", json.loads(call.arguments))["to"])
