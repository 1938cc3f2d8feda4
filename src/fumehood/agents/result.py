"""What a task gives back, however it ended."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from fumehood.agents.budget import Usage
from fumehood.agents.messages import AssistantMessage, Message
from fumehood.agents.stopping import StopReason
from fumehood.results import Artifact


@dataclass(frozen=True, slots=True)
class TaskResult:
    messages: tuple[Message, ...]
    """Of this task, in order; those of earlier tasks of the same agent are not among them."""
    stop_reason: StopReason
    usage: Usage
    artifacts: tuple[Artifact, ...]
    task_id: str

    @property
    def text(self) -> str:
        """The last thing that was said."""
        said = [message.text for message in self.messages if isinstance(message, AssistantMessage) and message.text]
        return said[-1] if said else ""

    def to_dict(self) -> dict[str, object]:
        """JSON-ready."""
        return {
            "task_id": self.task_id,
            "stop_reason": self.stop_reason.to_dict(),
            "text": self.text,
            "usage": self.usage.to_dict(),
            "artifacts": [asdict(artifact) for artifact in self.artifacts],
            "messages": [message.model_dump(mode="json", exclude={"native"}) for message in self.messages],
        }
