"""Requests as rows of the database, and back."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fumehood.errors import StepFailedError
from fumehood.policy import Policy
from fumehood.policy.digest import canonical_meaning
from fumehood.tools.approvals.requests import Moment, Request, State
from fumehood.tools.calls import Call

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be asked, by whom and for how long."""

    call: Call
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
        "meaning": canonical_meaning(question.policy),
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


def with_arguments(call: Call, arguments: Mapping[str, object]) -> Call:
    return Call(call.tool, arguments, call.policy_digest, call.risk, call.code, call.language)


def read_request(row: Row) -> Request:
    """What was written, or an error: a digest that does not fit means that somebody has changed the file."""
    call = Call(arguments=json.loads(row["arguments"]), policy_digest=row["policy_digest"], **json.loads(row["call"]))
    edited = None if row["edited"] is None else with_arguments(call, json.loads(row["edited"]))
    meaning = "sha256:" + hashlib.sha256(row["meaning"]).hexdigest()
    if (call.digest, edited and edited.digest, meaning) != (row["digest"], row["edited_digest"], row["policy_digest"]):
        raise StepFailedError(
            f"reading the request {row['id']}",
            "it is not what was asked or approved",
            remedy="Somebody has changed it; find out who, and ask again.",
        )
    return Request(
        id=row["id"],
        call=call,
        meaning=row["meaning"],
        state=State(row["state"]),
        edited=edited,
        **{name: row[name] for name in _PLAIN},
    )


_PLAIN = (
    *("policy_name", "asked_by", "tenant", "asked_at", "expires_at"),
    *("answered_by", "answered_at", "reason"),
)
