"""Amounts against the limits of `resources`."""

from __future__ import annotations

from fumehood.policy.amounts import Amount
from fumehood.policy.decision import Decision
from fumehood.policy.model import Policy
from fumehood.policy.quantities import MAX_SECONDS
from fumehood.policy.section import Leaf, leaves
from fumehood.policy.words import words


def decide_amount(policy: Policy, amount: Amount) -> Decision[str]:
    """Up to the limit, the limit included."""
    leaf = next(leaf for leaf in leaves(policy.resources) if leaf.key == amount.name)
    attempt = f"resource {amount.name}={words(amount.number, leaf)}"
    key = f"resources.{amount.name}"
    if isinstance(leaf.value, int | float):
        why = f"the limit is {words(leaf.value, leaf)}"
        if amount.number > leaf.value:
            return Decision(attempt, False, why, key, f"set {key}: {words(amount.number, leaf)}")
        if amount.name != "cpu_time":
            return Decision(attempt, True, why, key)
    return _decide_by_clock(policy, amount, attempt, leaf)


def _decide_by_clock(policy: Policy, amount: Amount, attempt: str, leaf: Leaf) -> Decision[str]:
    """CPU time has another bound, and without a limit of its own only that: how long a run lasts on how many CPUs."""
    resources, key = policy.resources, "resources.timeout"
    most = resources.timeout * resources.cpus
    why = f"timeout and cpus leave {words(most, leaf)} of it"
    if amount.number <= most:
        return Decision(attempt, True, why, key)
    needed = amount.number / resources.cpus
    return Decision(attempt, False, why, key, f"set {key}: {words(needed, leaf)}" if needed <= MAX_SECONDS else "")
