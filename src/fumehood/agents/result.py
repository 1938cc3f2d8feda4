"""The result of a task, and why it ended: always one of these reasons, whatever the model does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum, StrEnum
from typing import Generic, cast

from pydantic_core import to_jsonable_python
from typing_extensions import TypeVar

from fumehood.agents.budget import Limit, Usage
from fumehood.agents.messages import AssistantMessage, ChatMessage
from fumehood.agents.models.interface import ModelFailure
from fumehood.errors import ModelError, UsageError
from fumehood.results import Artifact


class Stop(StrEnum):
    DONE = "done"
    """The model answered and asked for nothing more."""
    BUDGET = "budget"
    """`limit` says which one was reached."""
    MODEL_FAILED = "model_failed"
    """`failure` says how."""
    INVALID_OUTPUT = "invalid_output"
    """No answer was a value of the agent's `output_type`, after all retries."""
    REFUSED = "refused"
    """The model, or a filter of its provider, refused to answer."""
    APPROVAL_PENDING = "approval_pending"
    """A call waits for a yes under the id `approval`; `resume` goes on."""
    HANDED_OFF = "handed_off"
    """The agent handed the task over to `target`."""
    CONDITION = "condition"
    """A termination condition of a team was met."""
    DENIED = "denied"
    """The runtime does not grant the policy that it works under."""
    CANCELLED = "cancelled"


# What ends a participant's turn in a team and not the team's task.
ENDS_TURN = frozenset({Stop.DONE, Stop.HANDED_OFF, Stop.CONDITION})


@dataclass(frozen=True, slots=True)
class StopReason:
    kind: Stop
    detail: str = ""
    limit: Limit | None = None
    failure: ModelFailure | None = None
    approval: str | None = None
    target: str | None = None

    @classmethod
    def of(cls, error: ModelError) -> StopReason:
        failure = ModelFailure(error.kind)
        return cls(Stop.REFUSED if failure is ModelFailure.REFUSED else Stop.MODEL_FAILED, str(error), failure=failure)

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else str(self.kind)

    def to_dict(self) -> dict[str, str]:
        return {name: str(value) for name, value in asdict(self).items() if value}


DONE = StopReason(Stop.DONE)


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
