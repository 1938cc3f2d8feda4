"""A request for approval and the answer to it, as data."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fumehood.host.processes import boot
from fumehood.keywords import known_fields
from fumehood.policy import Policy
from fumehood.tools.calls import Call


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
class Answer:
    """`arguments`, if given, are what is approved instead of what was asked."""

    approved: bool
    reason: str = ""
    arguments: Mapping[str, object] | None = None
    by: str | None = None
    """Who says so; by default the user that we run as."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Now, by two clocks: one that people set, and one that nobody can, but that begins anew with each boot."""

    wall: float
    since_boot: float
    boot: str
    is_behind: bool = False
    """The clock that people set says less than it said before."""

    @classmethod
    def now(cls) -> Moment:
        return cls(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), boot())


@dataclass(frozen=True, slots=True)
class Request:
    id: str
    call: Call
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
    edited: Call | None = None

    @property
    def policy(self) -> Policy:
        """The policy that the call would run under."""
        return Policy.model_validate({**json.loads(self.meaning), "name": self.policy_name})

    @property
    def approved_call(self) -> Call:
        return self.edited or self.call

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    def told(self) -> str:
        """How it stands, in words."""
        reason = f": {self.reason}" if self.reason else ""
        match self.state:
            case State.ASKED:
                return "nobody has answered yet"
            case State.APPROVED:
                how = "approved with changes" if self.edited else "approved"
                return f"{how} by {self.answered_by}{reason}"
            case State.DENIED:
                return f"denied by {self.answered_by}{reason}"
            case State.EXPIRED if self.answered_by:
                return f"approved by {self.answered_by}, but not used in time"
            case State.EXPIRED:
                return "nobody answered in time"
            case State.REVOKED:
                return "the policy has changed since it was asked"
            case State.WITHDRAWN:
                return "whoever asked does not want it any more"
            case State.USED:
                how = "approved with changes" if self.edited else "approved"
                return f"{how} by {self.answered_by} and used"
