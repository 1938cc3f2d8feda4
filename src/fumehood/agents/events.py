"""What `run_stream` yields: everything that happens in a task, in order. The last one is `TaskEnded`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import ClassVar

from fumehood.agents.result import TaskResult
from fumehood.results import Artifact, RunResult
from fumehood.tools.approvals import ApprovalRequest
from fumehood.tools.result import ToolStatus


@dataclass(frozen=True, slots=True)
class _Event:
    kind: ClassVar[str]

    def to_dict(self) -> dict[str, object]:
        """JSON-ready."""
        return {"kind": self.kind, **{each.name: _plain(getattr(self, each.name)) for each in fields(self)}}


@dataclass(frozen=True, slots=True)
class TaskStarted(_Event):
    kind = "task.started"

    agent: str
    task_id: str
    model: str


@dataclass(frozen=True, slots=True)
class TextDelta(_Event):
    """A piece of what a model says, after the filters."""

    kind = "text"

    agent: str
    text: str


@dataclass(frozen=True, slots=True)
class ThoughtDelta(_Event):
    kind = "thought"

    agent: str
    text: str


@dataclass(frozen=True, slots=True)
class Compacted(_Event):
    """The conversation was too long; the model reads less of it from here on."""

    kind = "compacted"

    agent: str
    why: str
    """`limit`, or `overflow`: the model said that it is too long."""
    messages_before: int
    messages_after: int
    tokens_before: int
    """An estimate of ours, as all of these."""
    tokens_after: int


@dataclass(frozen=True, slots=True)
class CallMade(_Event):
    """A model asks for a call; whether it is carried out is not decided yet."""

    kind = "tool.call"

    agent: str
    call_id: str
    tool: str
    arguments: str


@dataclass(frozen=True, slots=True)
class CallReturned(_Event):
    kind = "tool.result"

    agent: str
    call_id: str
    tool: str
    status: ToolStatus
    text: str
    """The result as the model reads it."""
    run: RunResult | None = None


@dataclass(frozen=True, slots=True)
class ApprovalRequested(_Event):
    kind = "approval.asked"

    agent: str
    approval: ApprovalRequest


@dataclass(frozen=True, slots=True)
class ApprovalSettled(_Event):
    kind = "approval.settled"

    agent: str
    approval: ApprovalRequest


@dataclass(frozen=True, slots=True)
class ArtifactFound(_Event):
    """A file that may leave."""

    kind = "artifact"

    agent: str
    artifact: Artifact


@dataclass(frozen=True, slots=True)
class TaskEnded(_Event):
    kind = "task.ended"

    result: TaskResult[object]


TaskEvent = (
    TaskStarted
    | TextDelta
    | ThoughtDelta
    | Compacted
    | CallMade
    | CallReturned
    | ApprovalRequested
    | ApprovalSettled
    | ArtifactFound
    | TaskEnded
)


def pictures_of(run: RunResult) -> list[str]:
    """Media types of what a session has shown besides text."""
    return [kind for display in run.displays for kind in display.data if kind != "text/plain"]


def _plain(value: object) -> object:
    match value:
        case RunResult():
            return {"run_id": value.run_id, "status": value.status.value, "pictures": pictures_of(value)}
        case ApprovalRequest():
            told = {"id": value.id, "tool": value.call.tool, "digest": value.call.digest}
            return {**told, "state": value.state.value, "told": value.told()}
        case Artifact():
            return asdict(value)
        case TaskResult():
            return value.to_dict()
        case _:
            return value
