"""Why a task ended: always one of these, whatever the model does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum

from fumehood.agents.budget import Limit
from fumehood.agents.models.interface import ModelFailure
from fumehood.errors import ModelError


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
