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


class DamagedRequestError(StepFailedError):
    """Somebody, or a disk, has changed what was asked or approved; it is not decided by what it says now."""

    def __init__(self, identifier: str) -> None:
        super().__init__(
            f"reading the request {identifier}",
            "it is not what was asked or approved",
            remedy="Somebody has changed it; find out who, and ask again.",
        )
        self.identifier = identifier


def read_request(row: Row) -> Request:
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
    """For the log, also of a request that is damaged."""
    try:
        return str(json.loads(row["call"])["tool"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return "?"


def _read(row: Row) -> Request:
    call = Call(arguments=json.loads(row["arguments"]), policy_digest=row["policy_digest"], **json.loads(row["call"]))
    for name, kinds in _PLAIN.items():
        if not isinstance(row[name], kinds):
            raise TypeError(name)
    return Request(
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
