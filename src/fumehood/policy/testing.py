"""The tests that a policy carries, run against what it says. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fumehood.policy.decision import Decision
from fumehood.policy.expectation import Expectation
from fumehood.policy.model import Policy
from fumehood.policy.rulings import Judge


@dataclass(frozen=True, slots=True)
class TestResult:
    """One test: what was expected, and what the policy says."""

    __test__ = False

    index: int
    expectation: Expectation
    decision: Decision[str]

    @property
    def passed(self) -> bool:
        return self.decision.verdict == self.expectation.expect


def run_tests(policy: Policy) -> Iterator[TestResult]:
    judge = Judge(policy)
    for index, expectation in enumerate(policy.tests):
        yield TestResult(index, expectation, judge.decide(expectation.kind, expectation.target))
