"""How much of a resource to ask a real sandbox for, so that a test of its limit means something.

A run uses a little of everything itself. So an amount within the limit is asked for without that little, and one beyond
the limit only as far as is surely refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from fumehood.policy import Policy
from fumehood.policy.amounts import Amount
from fumehood.policy.quantities import GIB, KIB, MIB


@dataclass(frozen=True, slots=True)
class Demand:
    resource: str
    amount: int


@dataclass(frozen=True, slots=True)
class _Manner:
    own_use: int
    beyond: int
    most: int
    """Nobody's machine is put to more than this for a test."""


_TIMES = frozenset({"timeout", "cpu_time"})
_MANNERS = {
    "memory": _Manner(own_use=16 * MIB, beyond=64 * MIB, most=GIB),
    "processes": _Manner(own_use=4, beyond=16, most=4096),
    "open_files": _Manner(own_use=8, beyond=8, most=65536),
    "disk": _Manner(own_use=64 * KIB, beyond=MIB, most=GIB),
    "inodes": _Manner(own_use=64, beyond=64, most=100_000),
    "output": _Manner(own_use=0, beyond=64 * KIB, most=64 * MIB),
}


def plan_demand(policy: Policy, amount: Amount) -> Demand | str:
    """What to ask for, or why nothing is."""
    manner = _MANNERS.get(amount.name)
    if amount.name in _TIMES:
        return "it would take as long as it says"
    if manner is None:
        return f"only a larger program could show how much of {amount.name} there is"
    limit = int(getattr(policy.resources, amount.name))
    if min(limit, amount.number) > manner.most:
        return f"it would take too much of this machine to use that much {amount.name}"
    if amount.number > limit:
        return Demand(amount.name, min(int(amount.number), limit + manner.beyond))
    return Demand(amount.name, max(0, int(amount.number) - manner.own_use))
