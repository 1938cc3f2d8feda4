"""Command lines: the words around what the command policy decides."""

from __future__ import annotations

from fumehood.policy.commands import judge
from fumehood.policy.commands.decision import shortened
from fumehood.policy.decision import Decision
from fumehood.policy.model import Policy


def decide_command(policy: Policy, line: str) -> Decision[str]:
    """As a line for bash. Of several refusals the first speaks; the change has to be about all of them."""
    attempt = f"command {line}"
    if policy.commands.is_open:
        return Decision(attempt, True, "commands has no rules, so anything may run inside", "commands")
    decision = judge(policy.commands, line)
    if decision.allowed:
        return Decision(attempt, True, "the rules allow every command in it", _list(policy))
    first = decision.denied[0]
    part = "" if first.attempt.text == line else f"{shortened(first.attempt.text)!r}: "
    fix = ", and ".join(dict.fromkeys(denied.fix for denied in decision.denied))
    return Decision(attempt, False, f"{part}{first.reason}", first.rule or _list(policy), fix)


def _list(policy: Policy) -> str:
    return "commands.deny" if policy.commands.allow is None else "commands.allow"
