"""The decisions of a policy about single attempts: a connection, a request, a file, a command, an amount. Pure.

    judge = Judge(policy)
    decision = judge.decide("connect", "api.github.com:443")
    decision.allowed, decision.reason, decision.rule, decision.fix

`hood policy test` and `hood policy explain` ask here. What happens in a sandbox is decided by the same rules
(`policy.egress`, `policy.commands`), or is what every backend builds from the same sections (`files`).
"""

from fumehood.policy.decisions.judge import Judge, TestResult, parse_attempt, run_tests

__all__ = ["Judge", "TestResult", "parse_attempt", "run_tests"]
