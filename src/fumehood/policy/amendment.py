"""A rule added to the text of a policy, with everything else in the text as it was: comments, order, layout. Pure."""

from __future__ import annotations

from typing import cast

import yaml

from fumehood.errors import PolicyError, UsageError
from fumehood.policy.model import Policy

_NETWORK, _ALLOW = "network", "allow"


def with_network_rule(text: str, rule: str) -> str:
    """`rule` is a mapping on one line, as in `{host: example.com, ports: [443]}`.

    UsageError if the text is written in a way in which the rule has to be added by hand. The result is read again:
    it is the policy of `text` with this one rule more, or it is not returned.
    """
    added = _read_rule(rule)
    before = Policy.loads(text, "policy", "/nonexistent")
    amended = _insert(text, rule)
    wanted = before.override({_NETWORK: {_ALLOW: [*before.network.allow, added]}})
    try:
        is_as_wanted = Policy.loads(amended, "policy", "/nonexistent").digest == wanted.digest
    except PolicyError:
        is_as_wanted = False
    if not is_as_wanted:
        raise UsageError("the rule cannot be added to this text by itself; write it into network.allow")
    return amended


def _read_rule(rule: str) -> dict[str, object]:
    try:
        found: object = None if "\n" in rule else yaml.safe_load(rule)
    except yaml.YAMLError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"{rule!r} is not a rule on one line")
    return cast("dict[str, object]", found)


def _insert(text: str, rule: str) -> str:
    root = cast("yaml.Node | None", yaml.compose(text, Loader=yaml.SafeLoader))  # pyright: ignore[reportUnknownMemberType]
    network = _value(root, _NETWORK)
    allow = _value(network, _ALLOW)
    if isinstance(allow, yaml.SequenceNode):
        return _into_list(text, allow, rule)
    if network is None:
        return f"{text.rstrip()}\n\n{_NETWORK}:\n  {_ALLOW}:\n    - {rule}\n".lstrip()
    if isinstance(network, yaml.MappingNode) and allow is None:
        return _into_mapping(text, network, rule)
    raise UsageError("`network` has another form than a rule can be added to by itself")


def _into_list(text: str, allow: yaml.SequenceNode, rule: str) -> str:
    if allow.flow_style:
        end = allow.end_mark.index - 1  # its closing bracket
        return f"{text[:end].rstrip()}{', ' if _items(allow) else ''}{rule}{text[end:]}"
    last = _items(allow)[-1]
    is_flow = isinstance(last, yaml.CollectionNode) and bool(last.flow_style)
    line_end = _line_end(text, last.end_mark.index if is_flow else _content_end(text, last))
    return f"{text[:line_end]}\n{' ' * allow.start_mark.column}- {rule}{text[line_end:]}"


def _into_mapping(text: str, network: yaml.MappingNode, rule: str) -> str:
    if network.flow_style:
        end = network.end_mark.index - 1
        comma = ", " if network.value else ""
        return f"{text[:end].rstrip()}{comma}{_ALLOW}: [{rule}]{text[end:]}"
    start = network.start_mark.index
    indent = " " * network.start_mark.column
    return f"{text[:start]}{_ALLOW}:\n{indent}  - {rule}\n{indent}{text[start:]}"


def _items(node: yaml.SequenceNode) -> list[yaml.Node]:
    return cast("list[yaml.Node]", node.value)


def _content_end(text: str, node: yaml.Node) -> int:
    """A block's end mark lies behind the blank lines and comments that follow it."""
    return node.start_mark.index + len(text[node.start_mark.index : node.end_mark.index].rstrip())


def _line_end(text: str, index: int) -> int:
    found = text.find("\n", index)
    return len(text) if found < 0 else found


def _value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    pairs = cast("list[tuple[yaml.Node, yaml.Node]]", node.value)
    return next((value for name, value in pairs if name.value == key), None)
