"""What a policy says to one attempt: a connection, a request, a file, a command, an amount. Pure.

    judge = Judge(policy)
    decision = judge.decide("connect", "api.github.com:443")
    decision.allowed, decision.reason, decision.rule, decision.fix

`hood policy test` and `hood policy explain` ask here. What happens in a sandbox is decided by the same rules
(`policy.egress`, `policy.commands`), or is what every backend builds from the same sections (`places`).
"""

from fumehood.policy.rulings.judging import Judge, parse_attempt

__all__ = ["Judge", "parse_attempt"]
