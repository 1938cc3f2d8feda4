"""What changes between two policies, in words that a reviewer can weigh.

Walks every key of the models, so a key without words of its own is still reported; two policies with different digests
never look the same here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import cast

from fumehood.policy.canonical_form import UNENFORCED
from fumehood.policy.filesystem import Mount
from fumehood.policy.hosts import endpoint
from fumehood.policy.network import NetworkRule
from fumehood.policy.secret import Secret
from fumehood.policy.section import Leaf, Section, leaves
from fumehood.policy.words import mount_words, rule_details, words

_ITEM_NAMES = {"environment.packages": "package", "filesystem.outputs": "output", "approvals": "approval"}


def compare(old: Section, new: Section) -> list[str]:
    """One line for each change from old to new; empty exactly when both enforce the same."""
    lines: list[str] = []
    for before, after in zip(leaves(old), leaves(new), strict=True):
        if before.value != after.value and before.key not in UNENFORCED:
            lines += list(_changes(before, after)) or [f"rearranges {after.key}"]
    return lines


def _changes(before: Leaf, after: Leaf) -> Iterator[str]:
    if (special := _SPECIAL.get(after.key)) is not None:
        return special(before, after)
    if isinstance(before.value, tuple) and isinstance(after.value, tuple):
        return _list_changes(before, after)
    return iter([_value_change(before, after)])


def _value_change(before: Leaf, after: Leaf) -> str:
    old, new, label = before.value, after.value, after.label
    if isinstance(new, bool):
        return f"turns {label} {words(new, after)}"
    if isinstance(old, int | float) and isinstance(new, int | float):
        return f"{'raises' if new > old else 'lowers'} {label} {words(old, before)} -> {words(new, after)}"
    if old is None:
        return f"sets {label} to {words(new, after)}"
    if new is None:
        return f"clears {label} (was {words(old, before)})"
    return f"changes {label} from {words(old, before)} to {words(new, after)}"


def _list_changes(before: Leaf, after: Leaf) -> Iterator[str]:
    old, new = cast("tuple[object, ...]", before.value), cast("tuple[object, ...]", after.value)
    name = _ITEM_NAMES.get(after.key)
    removed, added = Counter(old) - Counter(new), Counter(new) - Counter(old)
    for verb, joint, items in (("removes", "from", removed), ("adds", "to", added)):
        for item in items.elements():
            text = words(item, after)
            yield f"{verb} {name} {text}" if name else f"{verb} {text} {joint} {after.key}"


def _mount_changes(before: Leaf, after: Leaf) -> Iterator[str]:
    old = {mount.target: mount for mount in cast("tuple[Mount, ...]", before.value)}
    new = {mount.target: mount for mount in cast("tuple[Mount, ...]", after.value)}
    for target in sorted(old.keys() | new.keys()):
        was, now = old.get(target), new.get(target)
        if now is None and was is not None:
            yield f"unmounts {mount_words(was)}"
        elif was is None and now is not None:
            yield f"mounts {mount_words(now)}"
        elif was is not None and now is not None:
            for name in ("source", "mode"):
                if getattr(was, name) != getattr(now, name):
                    yield f"changes mount {target} from {getattr(was, name)} to {getattr(now, name)}"
            if was.sockets != now.sockets:
                yield f"{'allows' if now.sockets else 'forbids'} sockets in mount {target}"


def _network_changes(before: Leaf, after: Leaf) -> Iterator[str]:
    old = _openings(cast("tuple[NetworkRule, ...]", before.value))
    new = _openings(cast("tuple[NetworkRule, ...]", after.value))
    for place in [*old, *(place for place in new if place not in old)]:
        if place not in new:
            yield f"closes {place}"
        elif place not in old:
            yield f"opens {place}" + (f" {_alternatives(new[place])}" if any(new[place]) else "")
        elif old[place] != new[place]:
            yield f"changes {place} from {_alternatives(old[place])} to {_alternatives(new[place])}"


def _openings(rules: tuple[NetworkRule, ...]) -> dict[str, list[str]]:
    """What is allowed at each host and port, since one rule may open many and many rules the same."""
    openings: dict[str, list[str]] = {}
    for rule in rules:
        for port in rule.ports:
            openings.setdefault(endpoint(rule.host, port), []).append(rule_details(rule))
    return openings


def _alternatives(details: list[str]) -> str:
    return " or ".join(f"({text or 'anything'})" for text in details)


def _secret_changes(before: Leaf, after: Leaf) -> Iterator[str]:
    old = {secret.name: secret for secret in cast("tuple[Secret, ...]", before.value)}
    new = {secret.name: secret for secret in cast("tuple[Secret, ...]", after.value)}
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"removes secret {words(old[name], before)}"
        elif name not in old:
            yield f"adds secret {words(new[name], after)}"
        elif old[name] != new[name]:
            yield f"changes secret {words(old[name], before)} to {words(new[name], after)}"


_SPECIAL: dict[str, Callable[[Leaf, Leaf], Iterator[str]]] = {
    "filesystem.mounts": _mount_changes,
    "network.allow": _network_changes,
    "secrets": _secret_changes,
}
