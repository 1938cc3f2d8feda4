"""Requests for approval and the answers to them: as data, and as rows of the database."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from fumehood.errors import StepFailedError
from fumehood.host.processes import boot
from fumehood.keywords import known_fields
from fumehood.policy import Policy
from fumehood.tools.calls import ToolCall
from fumehood.tools.tool import Risk


class State(StrEnum):
    ASKED = "asked"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    REVOKED = "revoked"
    WITHDRAWN = "withdrawn"
    USED = "used"


OPEN = (State.ASKED, State.APPROVED)


@known_fields
@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """`arguments`, if given, are what is approved instead of what was asked."""

    approved: bool
    reason: str = ""
    arguments: Mapping[str, object] | None = None
    by: str | None = None
    """The approver; by default the user of this process."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Now, by two clocks: one that can be set, and one that cannot, but that begins anew with each boot."""

    wall: float
    since_boot: float
    boot: str
    is_behind: bool = False
    """The clock that people set says less than it said before."""

    @classmethod
    def now(cls) -> Moment:
        return cls(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), boot())


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    id: str
    call: ToolCall
    meaning: bytes
    """What the policy's digest is a digest of."""
    policy_name: str | None
    state: State
    asked_by: str
    tenant: str | None
    asked_at: float
    expires_at: float
    answered_by: str | None = None
    answered_at: float | None = None
    reason: str | None = None
    edited: ToolCall | None = None

    @property
    def policy(self) -> Policy:
        """The policy that the call would run under."""
        return Policy.model_validate({**json.loads(self.meaning), "name": self.policy_name})

    @property
    def approved_call(self) -> ToolCall:
        return self.edited or self.call

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    def told(self) -> str:
        """How it stands, in words."""
        reason = f": {self.reason}" if self.reason else ""
        match self.state:
            case State.ASKED:
                return "there is no answer yet"
            case State.APPROVED:
                how = "approved with changes" if self.edited else "approved"
                return f"{how} by {self.answered_by}{reason}"
            case State.DENIED:
                return f"denied by {self.answered_by}{reason}"
            case State.EXPIRED if self.answered_by:
                return f"approved by {self.answered_by}, but not used in time"
            case State.EXPIRED:
                return "there was no answer in time"
            case State.REVOKED:
                return "the policy has changed since it was asked"
            case State.WITHDRAWN:
                return "the call that asked for it was cancelled"
            case State.USED:
                how = "approved with changes" if self.edited else "approved"
                return f"{how} by {self.answered_by} and used"


Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be asked, for which user and for how long."""

    call: ToolCall
    policy: Policy
    seconds: float
    asked_by: str
    tenant: str | None = None


def new_row(question: Question, moment: Moment, holder: str) -> dict[str, Any]:
    call = question.call
    return {
        "id": f"ask_{secrets.token_hex(8)}",
        "digest": call.digest,
        "call": json.dumps({"tool": call.tool, "risk": call.risk, "code": call.code, "language": call.language}),
        "arguments": call.canonical,
        "policy_digest": call.policy_digest,
        "meaning": question.policy.meaning,
        "policy_name": question.policy.name,
        "state": State.ASKED,
        "asked_by": question.asked_by,
        "tenant": question.tenant,
        "asked_at": moment.wall,
        "expires_at": moment.wall + question.seconds,
        "boot": moment.boot,
        "expires_since_boot": moment.since_boot + question.seconds,
        "holder": holder,
    }


def with_arguments(call: ToolCall, arguments: Mapping[str, object]) -> ToolCall:
    return replace(call, arguments=arguments)


class DamagedRequestError(StepFailedError):
    """A stored request does not match its digest: it was changed after it was made or approved, and is not used."""

    def __init__(self, identifier: str) -> None:
        super().__init__(
            f"reading the request {identifier}",
            "it is not what was asked or approved",
            remedy="The stored request was changed; find out how, and ask again.",
        )
        self.identifier = identifier


def read_request(row: Row) -> ApprovalRequest:
    """What was written; DamagedRequestError when it is something else, by its digests or by its shape."""
    try:
        request = _read(row)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DamagedRequestError(str(row["id"])) from error
    meaning = "sha256:" + hashlib.sha256(request.meaning).hexdigest()
    edited = request.edited and request.edited.digest
    if (request.call.digest, edited, meaning) != (row["digest"], row["edited_digest"], row["policy_digest"]):
        raise DamagedRequestError(str(row["id"]))
    return request


def tool_of(row: Row) -> str:
    """The tool's name for the log, also of a damaged request."""
    try:
        return str(json.loads(row["call"])["tool"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return "?"


def _read(row: Row) -> ApprovalRequest:
    told, arguments = json.loads(row["call"]), json.loads(row["arguments"])
    call = ToolCall(told["tool"], arguments, row["policy_digest"], Risk(told["risk"]), told["code"], told["language"])
    for name, kinds in _PLAIN.items():
        if not isinstance(row[name], kinds):
            raise TypeError(name)
    return ApprovalRequest(
        id=row["id"],
        call=call,
        meaning=bytes(row["meaning"]),
        state=State(row["state"]),
        edited=None if row["edited"] is None else with_arguments(call, json.loads(row["edited"])),
        **{name: row[name] for name in _PLAIN},
    )


_NOTHING = type(None)
_PLAIN: dict[str, tuple[type, ...]] = {
    "policy_name": (str, _NOTHING),
    "asked_by": (str,),
    "tenant": (str, _NOTHING),
    "asked_at": (float,),
    "expires_at": (float,),
    "answered_by": (str, _NOTHING),
    "answered_at": (float, _NOTHING),
    "reason": (str, _NOTHING),
}
