"""What a policy says to one attempt: a connection, a request, a file, a command, an amount. Pure.

    judge = Judge(policy)
    ruling = judge.decide("connect", "api.github.com:443")
    ruling.allowed, ruling.why, ruling.rule, ruling.remedy

`hood policy test` and `hood policy explain` ask here. What happens in a sandbox is decided by the same rules
(`policy.egress`, `policy.commands`), or is what every backend builds from the same sections (`places`).
"""

from fumehood.policy.rulings.judging import Judge, parse_attempt
from fumehood.policy.rulings.ruling import Ruling

__all__ = ["Judge", "Ruling", "parse_attempt"]
