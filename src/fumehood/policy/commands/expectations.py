"""The tests of commands that a policy carries about itself: `{command: "git -C /x push", expect: deny}`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fumehood.policy.commands.judging import judge
from fumehood.policy.commands.verdict import Verdict

if TYPE_CHECKING:
    from fumehood.policy.expectation import Expectation
    from fumehood.policy.model import Policy


@dataclass(frozen=True, slots=True)
class Trial:
    expectation: Expectation
    verdict: Verdict

    @property
    def holds(self) -> bool:
        return self.verdict.allowed == (self.expectation.expect == "allow")


def try_commands(policy: Policy) -> Iterator[Trial]:
    """Each `command` among the policy's tests, judged as a line for bash."""
    for expectation in policy.tests:
        if expectation.command is not None:
            yield Trial(expectation, judge(policy.commands, expectation.command))
