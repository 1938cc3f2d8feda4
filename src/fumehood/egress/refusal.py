"""Why a connection ends before its time: the policy, or the world outside."""

from __future__ import annotations

from fumehood.policy.decision import Decision
from fumehood.policy.egress import Attempt

# Whoever meets a canary need not learn that there are any.
MUST_NOT_LEAVE = "it holds what must not leave"


class RefusedError(Exception):
    """The policy does not allow it."""

    def __init__(self, decision: Decision[Attempt]) -> None:
        super().__init__(decision.reason)
        self.decision = decision


class UnreachableError(Exception):
    """The policy would allow it, but the server cannot be found, reached or believed; the text says which."""
