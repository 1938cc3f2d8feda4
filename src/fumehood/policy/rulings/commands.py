"""Command lines: the words around what the command policy decides."""

from __future__ import annotations

from fumehood.policy.commands import Refusal, judge
from fumehood.policy.commands.verdict import shortened
from fumehood.policy.decision import Decision
from fumehood.policy.model import Policy


def decide_command(policy: Policy, line: str) -> Decision[str]:
    """As a line for bash. Of several refusals the first speaks; the change has to be about all of them."""
    attempt = f"command {line}"
    if policy.commands.is_open:
        return Decision(attempt, True, "commands has no rules, so anything may run inside", "commands")
    verdict = judge(policy.commands, line)
    if verdict.allowed:
        return Decision(attempt, True, "the rules allow every command in it", _list(policy))
    refusal = verdict.refusals[0]
    part = "" if refusal.part == line else f"{shortened(refusal.part)!r}: "
    remedy = ", and ".join(dict.fromkeys(refusal.remedy for refusal in verdict.refusals))
    return Decision(attempt, False, f"{part}{refusal.why}", _key(policy, refusal), remedy)


def _key(policy: Policy, refusal: Refusal) -> str:
    """Where the rule stands, or the list that lacks one."""
    if refusal.rule is None:
        return _list(policy)
    name = "deny" if refusal.rule in policy.commands.deny else "allow"
    return f"commands.{name}[{refusal.rule}]"


def _list(policy: Policy) -> str:
    return "commands.deny" if policy.commands.allow is None else "commands.allow"
