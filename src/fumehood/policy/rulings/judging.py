"""Asks the part of the policy that an attempt is about."""

from __future__ import annotations

from typing import assert_never

from fumehood.errors import PolicyError, UsageError
from fumehood.policy.amounts import parse_amount
from fumehood.policy.decision import Decision
from fumehood.policy.egress import Rulebook
from fumehood.policy.expectation import ATTEMPTS, AttemptKind, Expectation
from fumehood.policy.hosts import split_endpoint
from fumehood.policy.model import Policy
from fumehood.policy.rulings import commands, files, limits, network
from fumehood.policy.urls import parse_request


class Judge:
    """Of one policy; quick for any number of attempts."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._rulebook = Rulebook(policy)

    def decide(self, kind: AttemptKind, target: str) -> Decision[str]:
        """`target` as in a checked `Expectation`."""
        match kind:
            case "connect":
                return network.decide_connection(self._rulebook, *split_endpoint(target))
            case "http":
                return network.decide_request(self._rulebook, parse_request(target))
            case "read":
                return files.decide_read(self._policy, target)
            case "write":
                return files.decide_write(self._policy, target)
            case "command":
                return commands.decide_command(self._policy, target)
            case "resource":
                return limits.decide_amount(self._policy, parse_amount(target))
            case _:
                assert_never(kind)


def parse_attempt(text: str) -> Expectation:
    """An attempt that somebody asks about, checked as one in a policy's tests is."""
    kind, _, target = text.strip().partition(" ")
    if kind not in ATTEMPTS or not target.strip():
        raise UsageError(f'{text!r} is no attempt; write one such as "connect api.github.com:443", {_FORMS}')
    try:
        policy = Policy(tests=[{kind: target.strip(), "expect": "allow"}])
    except PolicyError as error:
        raise UsageError("; ".join(problem.removeprefix(f"tests[0].{kind}: ") for problem in error.problems)) from None
    return policy.tests[0]


_FORMS = (
    '"http GET https://api.github.com/x", "read /data/x", "write out/x", "command git push" or "resource memory=1G"'
)
