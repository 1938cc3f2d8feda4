"""Audit events of approvals. `request` and `digest` tie the events of one request together."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood.audit.events import AuditEvent, Content


@dataclass(frozen=True, slots=True)
class _ApprovalEvent(AuditEvent):
    request: str
    tool: str
    digest: str


@dataclass(frozen=True, slots=True)
class ApprovalOpened(_ApprovalEvent):
    kind = "approval.asked"

    risk: str
    policy_digest: str
    policy_name: str | None
    arguments: Content
    expires: str


@dataclass(frozen=True, slots=True)
class ApprovalTakenUp(_ApprovalEvent):
    """A repeated call waits for the answer to an earlier request, whose caller no longer waits."""

    kind = "approval.taken_up"


@dataclass(frozen=True, slots=True)
class ApprovalReviewed(_ApprovalEvent):
    """What a reviewer, which is no person, said; with `ask_person` it has left the request to one."""

    kind = "approval.reviewed"

    reviewer: str
    verdict: str
    reason: str
    model: str | None
    cost: str | None
    """In US dollars, such as 0.001200."""
    tokens: int


@dataclass(frozen=True, slots=True)
class ApprovalGiven(_ApprovalEvent):
    kind = "approval.given"

    by: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class ApprovalEdited(_ApprovalEvent):
    """Something else was approved than what was asked: `approved_digest` is that of the edited call."""

    kind = "approval.edited"

    by: str
    approved_digest: str
    arguments: Content


@dataclass(frozen=True, slots=True)
class ApprovalDenied(_ApprovalEvent):
    kind = "approval.denied"

    by: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class ApprovalExpired(_ApprovalEvent):
    """A request was not answered in time, or an approval was not used in time."""

    kind = "approval.expired"

    was: str


@dataclass(frozen=True, slots=True)
class ApprovalRevoked(_ApprovalEvent):
    """The policy has changed since."""

    kind = "approval.revoked"

    policy_digest: str


@dataclass(frozen=True, slots=True)
class ApprovalWithdrawn(_ApprovalEvent):
    """The task that asked has ended; an answer would be for nothing."""

    kind = "approval.withdrawn"


@dataclass(frozen=True, slots=True)
class ApprovalUsed(_ApprovalEvent):
    """The call is made now. There is no second one for the same yes."""

    kind = "approval.used"
