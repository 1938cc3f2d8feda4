"""Which controls a policy asks for beyond the deny-all default, so that a backend can refuse what it cannot enforce."""

from __future__ import annotations

from fumehood.policy.section import Section, leaves

# Who runs it, what it is called and what it says of itself are not controls; `strict` is how a backend answers to them;
# `audit`, `approvals` and `filters` are enforced above the backends, the same for all.
_NOT_CONTROLS = frozenset({"version", "name", "backend", "strict", "tests", "audit", "approvals", "filters"})
# Sections that a backend enforces as a whole or not at all.
_WHOLE = frozenset({"commands", "docker"})


def controls(policy: Section) -> list[str]:
    """The keys that differ from the default, in the order of the file format; empty for a policy that denies all."""
    found: dict[str, None] = {}
    for leaf, default in zip(leaves(policy), leaves(type(policy)()), strict=True):
        section = leaf.key.partition(".")[0]
        if leaf.value != default.value and section not in _NOT_CONTROLS:
            found[section if section in _WHOLE else leaf.key] = None
    return list(found)
