"""The result of a task, however it ended."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Generic, cast

from pydantic_core import to_jsonable_python
from typing_extensions import TypeVar

from fumehood.agents.budget import Usage
from fumehood.agents.messages import AssistantMessage, ChatMessage
from fumehood.agents.stop_reason import StopReason
from fumehood.errors import UsageError
from fumehood.results import Artifact

OutputT = TypeVar("OutputT", default=str)
"""The type of what a task gives back: `output_type` of an agent, and a text without one."""
OutputT_co = TypeVar("OutputT_co", covariant=True, default=str)


class OutputKind(Enum):
    """What stands in place of an output that is not a value."""

    TEXT = "text"
    """The agent has no `output_type`: the text is the output."""
    NONE = "none"
    """The agent has one, and the task ended before there was a value."""


@dataclass(frozen=True, slots=True)
class TaskResult(Generic[OutputT_co]):
    messages: tuple[ChatMessage, ...]
    """The messages of this task, in order, without those of earlier tasks of the same agent."""
    stop_reason: StopReason
    usage: Usage
    artifacts: tuple[Artifact, ...]
    task_id: str
    _output: OutputT_co | OutputKind = OutputKind.TEXT
    _output_text: str = ""

    @property
    def output(self) -> OutputT_co:
        """The validated answer of an agent with an `output_type`; without one, the text.

        UsageError if the task ended without such an answer: `stop_reason` says why.
        """
        if self._output is OutputKind.TEXT:
            return cast("OutputT_co", self.text)
        if self._output is OutputKind.NONE:
            raise UsageError(f"this task ended without an output ({self.stop_reason}); look at stop_reason first")
        return cast("OutputT_co", self._output)

    @property
    def text(self) -> str:
        """The last text of a model; of an answer with an `output_type`, its JSON."""
        if self._output_text:
            return self._output_text
        said = [message.text for message in self.messages if isinstance(message, AssistantMessage) and message.text]
        return said[-1] if said else ""

    def to_dict(self) -> dict[str, object]:
        """JSON-ready."""
        has_value = not isinstance(self._output, OutputKind)
        return {
            "task_id": self.task_id,
            "stop_reason": self.stop_reason.to_dict(),
            "text": self.text,
            **({"output": to_jsonable_python(self._output)} if has_value else {}),
            "usage": self.usage.to_dict(),
            "artifacts": [asdict(artifact) for artifact in self.artifacts],
            "messages": [message.model_dump(mode="json", exclude={"native"}) for message in self.messages],
        }
