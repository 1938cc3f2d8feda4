"""A policy in words: each value as its author would write it, and a whole policy line by line."""

from __future__ import annotations

from typing import cast

from fumehood.policy.approvals import Approval
from fumehood.policy.attempts import Expectation
from fumehood.policy.filesystem import Mount
from fumehood.policy.filters import CanarySource
from fumehood.policy.hosts import endpoint
from fumehood.policy.network import NetworkRule
from fumehood.policy.quantities import format_duration, format_number, format_size
from fumehood.policy.secret import Secret
from fumehood.policy.section import Leaf, Section, leaves

_WHEN_UNSET = {
    "commands.allow": "any",
    "filesystem.workspace.size": "as resources.disk",
    "resources.cpu_time": "as timeout and cpus allow",
}


def describe(policy: Section) -> list[str]:
    """Each key in one line, a list of things in a line for each; what is not set and means nothing is left out."""
    lines: list[str] = []
    for leaf in leaves(policy):
        label = "network" if leaf.key == "network.allow" else leaf.label
        if leaf.value is not None:
            lines += [f"{label}: {words(item, leaf)}" for item in _items(leaf.value)]
        elif leaf.key in _WHEN_UNSET:
            lines.append(f"{label}: {_WHEN_UNSET[leaf.key]}")
    return lines


def words(value: object, leaf: Leaf) -> str:
    """One value of a key."""
    match value:
        case None | ():
            return "none"
        case bool():
            return "on" if value else "off"
        case int() | float():
            return leaf.quantity.format(value) if leaf.quantity else format_number(value)
        case tuple():
            return ", ".join(words(item, leaf) for item in cast("tuple[object, ...]", value))
        case Section():
            return _item_words(value)
        case _:
            return str(value)


def rule_details(rule: NetworkRule) -> str:
    """What narrows or widens a rule beyond its host and ports; empty when nothing does."""
    parts = [
        rule.protocol,
        None if rule.methods is None else " ".join(rule.methods),
        None if rule.paths is None else " ".join(rule.paths),
        None if rule.headers is None else f"with headers {' '.join(rule.headers)}",
        "WebSockets too" if rule.websocket else None,
        "private addresses too" if rule.private else None,
        None if rule.max_bytes is None else f"at most {format_size(rule.max_bytes)}",
        None if rule.max_connections is None else f"at most {rule.max_connections} connections",
        None if rule.max_rate is None else f"at most {rule.max_rate!r} connections a second",
    ]
    return ", ".join(part for part in parts if part is not None)


def mount_words(mount: Mount) -> str:
    return f"{mount.source} at {mount.target} ({mount.mode}{', with sockets' if mount.sockets else ''})"


def _item_words(item: Section) -> str:
    match item:
        case Mount():
            return mount_words(item)
        case NetworkRule():
            places = ", ".join(endpoint(item.host, port) for port in item.ports)
            details = rule_details(item)
            return f"{places} ({details})" if details else places
        case Secret():
            place = item.inject
            return f"{item.name} from {item.origin}, sent to {place.host} as {place.header}: {place.format}"
        case Approval():
            limits = [f"{name} {value}" for name in ("risk", "pattern") if (value := getattr(item, name)) is not None]
            limits += [f"expires after {format_duration(item.expires)}"] if item.when != "never" else []
            return f"{item.tool} {item.when}" + (f" ({', '.join(limits)})" if limits else "")
        case CanarySource():
            return f"{item.name} from {item.origin}"
        case Expectation():
            return f"{item.expect} {item.attempt}"
        case _:
            return str(item)


def _items(value: object) -> tuple[object, ...]:
    items = cast("tuple[object, ...]", value if isinstance(value, tuple) else ())
    return items if any(isinstance(item, Section) for item in items) else (cast("object", value),)
